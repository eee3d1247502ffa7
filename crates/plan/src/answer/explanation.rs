//! One number of a plan, explained: its formula with names and with numbers, and where each comes from.

use super::StoragePlan;
use crate::{
    derivation::{Derived, Input},
    figure::{nearest, suggestion},
};
use std::fmt;
use thiserror::Error;

/// One number, explained.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Explained {
    numbers: Vec<Derived>,
}

/// There is nothing to explain under this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("nothing in this plan is called {name:?}{}", suggestion(.nearest))]
pub struct UnknownId {
    name: String,
    nearest: Option<String>,
}

impl StoragePlan {
    /// Explains the number called `id`, such as `DSU`: once for each tier of users, where these differ.
    pub fn explain(&self, id: &str) -> Result<Explained, UnknownId> {
        match self.demand.sheet.find(id) {
            Ok(found) => Ok(Explained { numbers: found.into_iter().cloned().collect() }),
            Err(_) => {
                let ids = self.demand.sheet.all().iter().map(|one| one.id);
                let nearest = nearest(&id.to_ascii_uppercase(), ids).map(str::to_owned);
                Err(UnknownId { name: id.to_owned(), nearest })
            }
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.numbers.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            explain(one, f)?;
        }
        Ok(())
    }
}

fn explain(one: &Derived, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let tier = one.tier.as_ref().map(|tier| format!(", {tier}")).unwrap_or_default();
    writeln!(f, "{}: {}{tier}", one.id, one.title)?;
    writeln!(f)?;
    if one.formula.is_empty() {
        writeln!(f, "  {} = {}", one.id, one.shown())?;
    } else {
        let blank = " ".repeat(one.id.len());
        writeln!(f, "  {} = {}", one.id, one.formula)?;
        writeln!(f, "  {blank} = {}", one.put_in)?;
        writeln!(f, "  {blank} = {}", one.shown())?;
        writeln!(f)?;
        let width = |text: fn(&Input) -> &str| {
            one.inputs.iter().map(|input| text(input).chars().count()).max().unwrap_or(0)
        };
        let names = width(|input| &input.name);
        let values = width(|input| &input.shown).min(24);
        for input in &one.inputs {
            let trust = input.confidence.word();
            writeln!(f, "  {:names$}  {:values$}  {}", input.name, input.shown, input.meaning)?;
            writeln!(f, "  {:names$}  {:values$}  {} ({trust})", "", "", input.source)?;
        }
    }
    writeln!(f)?;
    write!(f, "Source: {} ({}: {})", one.source, one.confidence.word(), one.confidence.meaning())?;
    writeln!(f)
}
