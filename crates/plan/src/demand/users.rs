//! Who is planned for: the tiers as they were given, and all of them after growth.

use super::Asked;
use crate::{
    derivation::{Sheet, Step},
    figure::{Confidence, GIVEN},
    profile::{CLIENTS, Given},
};

const DEFAULT: &str = "default; nothing was said";

pub(super) fn derive(sheet: &mut Sheet, asked: &Asked<'_>) {
    sheet.begin("Users");
    for (index, tier) in asked.profile.tiers.iter().enumerate() {
        let mut give = |id, title, unit, value: f64, given: bool| {
            let (source, confidence) =
                if given { (GIVEN, Confidence::Given) } else { (DEFAULT, Confidence::Assumed) };
            let step = Step { id, title, unit, formula: "", source: "", confidence };
            sheet.give(Some(index), step, value, source);
        };
        fn of<T>(given: Given<T>, number: impl Fn(T) -> f64) -> (f64, bool) {
            (number(given.value), given.given)
        }
        let rows = [
            ("USERS", "Mailboxes today", "users", (tier.users as f64, true)),
            ("GRO", "Growth", "%", (tier.growth.unwrap_or(asked.profile.growth), true)),
            ("MQ", "Mailbox quota", "MB", of(tier.quota, |size| size.get())),
            ("MSR", "Messages sent and received a day", "", of(tier.messages, |count| count)),
            ("AMS", "Mean message size", "KB", of(tier.message_size, |size| size.get())),
            ("CON", "At work at the busiest time", "%", of(tier.concurrency, |percent| percent)),
        ];
        for (id, title, unit, (value, given)) in rows {
            give(id, title, unit, value, given);
        }
    }
    let copies = Step {
        id: "COPIES",
        title: "Copies of every database, the active one among them",
        unit: "",
        formula: "",
        source: "",
        confidence: Confidence::Given,
    };
    sheet.give(None, copies, asked.copies.into(), GIVEN);
    sheet.derive_each(Step::seed(
        "NU",
        "Mailboxes, growth included",
        "users",
        "ceil(USERS * (1 + GRO))",
        "seed 004 table 14, step 1: future growth included",
    ));
    sheet.derive(Step::plain("USERS_ALL", "Mailboxes today, all", "users", "total(USERS)", "a sum"));
    sheet.derive(Step::plain("NUT", "Mailboxes, all", "users", "total(NU)", "a sum"));
    clients(sheet, asked);
}

/// How much more the clients of a tier ask for.
fn clients(sheet: &mut Sheet, asked: &Asked<'_>) {
    for (index, tier) in asked.profile.tiers.iter().enumerate() {
        let figure = |name: &String| CLIENTS.iter().find(|(known, _)| known == name).map(|(_, key)| *key);
        let added = tier.clients.iter().filter_map(figure);
        let formula = added.fold("1".to_owned(), |formula, key| format!("{formula} + {key}"));
        sheet.derive_for(
            index,
            Step {
                id: "CLF",
                title: "Load of clients",
                unit: "x",
                formula: &formula,
                source: "seed 004 section 3.3.2: clients that add I/O",
                confidence: Confidence::Seed,
            },
        );
    }
}
