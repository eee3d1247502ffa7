//! The network between servers and storage.

use crate::advice::subject::{Outcome, Subject};

/// Looks at what the site says of its network: yes or no.
fn yes(said: Option<bool>, missing: &str, broken: &str) -> Outcome {
    match said {
        Some(true) => Outcome::Kept,
        Some(false) => Outcome::Broken(vec![broken.to_owned()]),
        None => Outcome::Unsaid(format!("{missing} of the network")),
    }
}

/// True unless the site denies Ethernet.
fn is_ethernet(subject: &Subject<'_>) -> bool {
    subject.site.network.ethernet != Some(false)
}

pub fn jumbo_frames(subject: &Subject<'_>) -> Outcome {
    match is_ethernet(subject) {
        true => yes(subject.site.network.jumbo_frames, "jumbo_frames", "jumbo_frames is false"),
        false => Outcome::Outside,
    }
}

pub fn flow_control(subject: &Subject<'_>) -> Outcome {
    match is_ethernet(subject) {
        true => yes(subject.site.network.flow_control, "flow_control", "flow_control is false"),
        false => Outcome::Outside,
    }
}

pub fn storage_network(subject: &Subject<'_>) -> Outcome {
    match is_ethernet(subject) {
        true => yes(subject.site.network.storage_only, "storage_only", "storage_only is false"),
        false => Outcome::Outside,
    }
}

pub fn edge_ports(subject: &Subject<'_>) -> Outcome {
    match is_ethernet(subject) {
        true => yes(subject.site.network.edge_ports, "edge_ports", "edge_ports is false"),
        false => Outcome::Outside,
    }
}

pub fn two_switches(subject: &Subject<'_>) -> Outcome {
    match subject.site.network.switches {
        Some(switches) => Outcome::expect(switches > 1, || format!("switches is {switches}")),
        None => Outcome::Unsaid("switches of the network".to_owned()),
    }
}
