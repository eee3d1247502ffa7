//! Users: the tiers as given, and all users after growth.

use super::PlanInput;
use crate::{
    derivation::{Sheet, Step},
    figure::{Confidence, GIVEN},
    profile::{CLIENTS, TierValue},
};

const DEFAULT: (&str, Confidence) = ("default; nothing was said", Confidence::Assumed);
const NO_GROWTH: (&str, Confidence) = ("none was asked for", Confidence::Given);
const ALL_AT_WORK: (&str, Confidence) = ("HP EVA8000, appendix A: concurrency 100 %", Confidence::Seed);

/// Source and confidence of a value: the administrator's, or the default's.
fn who<T>(value: TierValue<T>, default: (&'static str, Confidence)) -> (&'static str, Confidence) {
    if value.given { (GIVEN, Confidence::Given) } else { default }
}

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Users");
    for (index, tier) in input.profile.tiers.iter().enumerate() {
        let mut give = |id, title, unit, value: f64, (source, confidence): (&str, Confidence)| {
            let step = Step { id, title, unit, formula: "", source: "", confidence };
            sheet.give(Some(index), step, value, source);
        };
        let growth = tier.growth.unwrap_or(input.profile.growth);
        let said = (GIVEN, Confidence::Given);
        give("USERS", "Mailboxes today", "users", tier.users as f64, said);
        give("GRO", "Growth", "%", growth, if growth > 0.0 { said } else { NO_GROWTH });
        give("MQ", "Mailbox quota", "MB", tier.quota.value.get(), who(tier.quota, DEFAULT));
        let messages = tier.messages;
        give("MSR", "Messages sent and received a day", "", messages.value, who(messages, DEFAULT));
        let size = tier.message_size;
        give("AMS", "Mean message size", "KB", size.value.get(), who(size, DEFAULT));
        let at_work = tier.concurrency;
        give("CON", "At work at the busiest time", "%", at_work.value, who(at_work, ALL_AT_WORK));
    }
    let copies = Step {
        id: "COPIES",
        title: "Copies of every database, the active one among them",
        unit: "",
        formula: "",
        source: "",
        confidence: Confidence::Given,
    };
    sheet.give(None, copies, input.copies.into(), GIVEN);
    sheet.derive_each(Step::seed(
        "NU",
        "Mailboxes, growth included",
        "users",
        "ceil(USERS * (1 + GRO))",
        "Dell 2010, table 14, step 1: future growth included",
    ));
    sheet.derive(Step::plain("USERS_ALL", "Mailboxes today, all", "users", "total(USERS)", "a sum"));
    sheet.derive(Step::plain("NUT", "Mailboxes, all", "users", "total(NU)", "a sum"));
    clients(sheet, input);
}

/// Adds the load factor of a tier's clients.
fn clients(sheet: &mut Sheet, input: &PlanInput<'_>) {
    for (index, tier) in input.profile.tiers.iter().enumerate() {
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
                source: "Dell 2010, section 3.3.2: clients that add I/O",
                confidence: Confidence::Seed,
            },
        );
    }
}
