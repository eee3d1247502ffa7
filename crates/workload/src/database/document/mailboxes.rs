//! The mailbox count and its derivation.

use crate::database::results::{
    RunResults,
    mailboxes::{MESSAGES_PER_DAY, Mailboxes},
};
use report::{Cell, Column, Document, Section, Table, Unit, prose::number};

pub fn add_highlight(document: &mut Document, mailboxes: &Mailboxes) {
    let what = format!("Mailboxes of {} messages a day", mailboxes.figure.messages_per_day);
    let note = format!("within {} ms; {}", mailboxes.within_ms, mailboxes.claim.words());
    document.highlight(what, Cell::text(format!("≈ {}", mailboxes.number())), note);
}

/// The derivation of the count, or the reason there is none.
pub fn section(results: &RunResults, mailboxes: Option<&Mailboxes>) -> Section {
    let section = Section::new(
        "Mailboxes",
        "The number of mailboxes that the storage supports, with the source of each figure.",
    );
    let Some(mailboxes) = mailboxes else {
        return section.paragraph(if results.measured_s > 0.0 {
            format!(
                "No count: the run did not pass, or no source gives the I/O of a mailbox of {MESSAGES_PER_DAY} \
                 messages a day for profile {}.",
                results.plan.profile.name
            )
        } else {
            "Nothing was measured.".to_owned()
        });
    };
    let (figure, headroom) = (&mailboxes.figure, &mailboxes.headroom);
    let columns =
        [Column::text("Figure"), Column::text("Value"), Column::text("Source"), Column::text("Known from")];
    let mut table = Table::new("", columns);
    let mut row = |what: String, value: String, source: &str, known_from: &str| {
        table.push([Cell::text(what), Cell::text(value), Cell::text(source), Cell::text(known_from)]);
    };
    row(
        "Database I/O within every limit".to_owned(),
        format!("{} {}", number(mailboxes.achieved_iops, 1), Unit::IoPerSecond),
        "this run; log and background scan not counted",
        "measured",
    );
    row(
        format!("I/O of one mailbox of {} messages a day, {}", figure.messages_per_day, figure.server),
        format!("{:.3} {}", figure.iops, Unit::IoPerSecond),
        &figure.source,
        figure.confidence.word(),
    );
    row(
        "Headroom".to_owned(),
        format!("{} %", headroom.percent),
        &headroom.source,
        headroom.confidence.word(),
    );
    row(
        "Mailboxes".to_owned(),
        format!("≈ {}", mailboxes.number()),
        "I/O within limits / (I/O of one mailbox × (1 + headroom)), its first two digits, rounded down",
        "computed",
    );
    section.block(table).paragraph(format!(
        "Result: {}. It covers the database I/O of mailboxes only; plan capacity, processors, memory and the \
         log volume separately.",
        mailboxes.headline()
    ))
}
