//! The site as one file, `site.toml`.
