//! The figures of a mail server, by the name of a rule set.
