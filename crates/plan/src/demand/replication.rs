//! Bandwidth that remote copies need, and the lines that carry it.

use super::{Mode, PlanInput};
use crate::{
    derivation::{Sheet, Step},
    figure::Confidence,
    profile,
};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Replication link");
    sheet.derive(Step::plain(
        "LPH",
        "Log files of all mailboxes in the busiest hour",
        "",
        "LPD * peak_hour",
        "a share of the day's",
    ));
    sheet.derive(Step::plain(
        "LSB",
        "Rate of shipped logs, one remote copy",
        "Mb/s",
        "LPH * log_file * 1.048576 * 8 / 3600 * (1 - log_compression)",
        "logs of the busiest hour, 1 MB being 8.39 Mb",
    ));
    sheet.derive(Step::seed(
        "WRB",
        "What hosts write to databases and logs",
        "MB/s",
        "(DBWR * page + LOGW * log_write) / 1024",
        "HP Continuous Access: each write to databases and logs crosses the link",
    ));
    sheet.derive(Step::plain(
        "RSB",
        "Rate of replicated storage, one remote copy",
        "Mb/s",
        "WRB * 1.048576 * 8",
        "every write, not the logs alone",
    ));
    // Servers that keep copies ship logs; storage replicates for those that do not.
    let formula = match input.mode {
        Mode::Copies => "LSB * remote_copies / link_use",
        Mode::StandAlone | Mode::BackupWindow => "RSB * remote_copies / link_use",
    };
    sheet.derive(Step::plain(
        "LNK",
        "Rate of the line that is needed",
        "Mb/s",
        formula,
        "logs are shipped where servers keep copies, else storage replicates",
    ));
    for (id, title, formula) in [
        ("LT3", "Of a T3 line's rate", "LNK / line_t3"),
        ("LOC3", "Of an OC3 line's rate", "LNK / line_oc3"),
        ("L1G", "Of gigabit Ethernet's rate", "LNK / line_1gbe"),
        ("L10G", "Of 10-gigabit Ethernet's rate", "LNK / line_10gbe"),
    ] {
        sheet.derive(Step::plain(id, title, "%", formula, "more than 100 % is too much"));
    }
    named_line(sheet, input);
    round_trips(sheet);
}

fn named_line(sheet: &mut Sheet, input: &PlanInput<'_>) {
    let Some(name) = &input.profile.link else { return };
    let key = profile::line(name).expect("the profile was checked");
    sheet.derive(Step {
        id: "LINE",
        title: "Rate of the line",
        unit: "Mb/s",
        formula: key,
        source: "the line that was named",
        confidence: Confidence::Given,
    });
    sheet.derive(Step::plain(
        "FULL",
        "Time of a full copy over it",
        "h",
        "DCAP * 1.073741824 * 8000 / (LINE * link_use) / 3600",
        "all database volumes, 1 GB being 8,590 Mb",
    ));
}

/// Adds the throughput of one connection over a long or lossy link.
fn round_trips(sheet: &mut Sheet) {
    if sheet.rules().value("link_rtt") == 0.0 {
        return;
    }
    sheet.derive(Step::plain(
        "TCPW",
        "What one connection carries, by its window",
        "Mb/s",
        "tcp_window * 1024 * 8 / 1000000 / (link_rtt / 1000)",
        "a window a round trip",
    ));
    let by_loss = sheet.rules().value("link_loss") > 0.0;
    if by_loss {
        sheet.derive(Step {
            id: "TCPL",
            title: "What one connection carries, by lost packets",
            unit: "Mb/s",
            formula: "tcp_segment * 8 / 1000000 * tcp_loss_constant / (link_rtt / 1000 * sqrt(link_loss))",
            source: "Mathis et al. 1997",
            confidence: Confidence::Recalled,
        });
    }
    let carries = if by_loss { "min(TCPW, TCPL)" } else { "TCPW" };
    sheet.derive(Step::plain("TCP", "What one connection carries", "Mb/s", carries, "the less of both"));
    sheet.derive(Step::plain("CONN", "Connections that are needed", "", "ceil(LNK / TCP)", "side by side"));
}
