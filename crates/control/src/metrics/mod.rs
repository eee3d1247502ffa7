//! Metrics for Prometheus: one table of families ([`families`]), rendered in two text formats ([`render`]).
//!
//! Nothing counts for Prometheus's sake: figures of pools are read, and become text when somebody asks for it.
//!
//! Invariants:
//!
//! 1. Every sample belongs to a family of the table, and has the labels that the table says.
//! 2. Histograms are shown of at most [`HISTOGRAMS_MAX`] volumes, or of those that the setting lists; counters of all.

mod dr_families;
mod exposition;
mod families;
mod listing;
mod selection;

pub use exposition::{
    HISTOGRAMS_MAX, MeteredDrGroup, MeteredSite, MetricsFormat, MetricsSetting, NamedFigures, render,
    render_site,
};
pub use families::{MetricFamily, MetricKind, MetricUnit, families};
pub use listing::listing;
pub use selection::VolumeSelection;
