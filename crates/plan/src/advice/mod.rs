//! What is wrong with a site, by rules with sources.
