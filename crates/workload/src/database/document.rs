//! Results as a report.
