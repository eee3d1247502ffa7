//! Facts about the machine, its drives and its filesystems, for pre-flight checks and the report.
