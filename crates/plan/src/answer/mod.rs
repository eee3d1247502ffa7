//! A whole plan: needs, derivation, choices from the catalogue, and its documents.

mod document;
mod explanation;
mod purchase;
mod summary;

pub use explanation::{Explained, UnknownId};

use crate::{
    catalogue::Catalogue,
    demand::{Demand, DemandError, Needs},
    derivation::Derived,
    figure::{Confidence, Curve, Figure},
    fit::{self, Choice, Fit, Rejected, Sizing, WishError, Wishes},
    layout,
    profile::Profile,
    rules::Rules,
    site::{Link, Location, Site, Snapshots, Users, round},
    units::counted,
};
use serde::Serialize;
use thiserror::Error;

/// Databases, copies included, beyond which a layout is no longer for people.
const LAID_OUT_MAX: u64 = 20_000;

/// A whole plan.
#[derive(Clone, Debug)]
pub struct StoragePlan {
    pub profile: Profile,
    /// The needs, with their derivation.
    pub demand: Demand,
    /// Choices that meet the needs, and those rejected.
    pub fit: Fit,
    wishes: Wishes,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The profile cannot be planned for.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// The catalogue lacks a wished product, drive or level.
    #[error(transparent)]
    Wish(#[from] WishError),
}

/// Why there is no site of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoSite {
    /// Nothing carries it.
    #[error("nothing in the catalogue carries this: {0}")]
    NothingFits(String),
    /// It is too large to be laid out.
    #[error(
        "{} database copies; at most {} are laid out: plan a part of the users",
        counted(*.databases),
        counted(*.most)
    )]
    TooLarge {
        /// With their copies.
        databases: u64,
        most: u64,
    },
}

impl StoragePlan {
    /// Plans for `profile` by `rules` with what is in `catalogue`.
    pub fn of(profile: Profile, rules: Rules, catalogue: &Catalogue) -> Result<Self, PlanError> {
        let mut demand = Demand::of(&profile, rules)?;
        let wishes = Wishes {
            product: profile.array.clone(),
            raid: profile.raid,
            databases_per_log: demand.sheet.rules().value("databases_per_log") as u32,
            sizing: Sizing::of(demand.sheet.rules()),
            ..Wishes::default()
        };
        let fit = fit::choices(&demand.needs, catalogue, &wishes)?;
        if let Some(first) = fit.choices.first() {
            purchase::derive(&mut demand.sheet, first);
        }
        Ok(Self { profile, demand, fit, wishes })
    }

    /// The choice that needs least, if any carries it.
    pub fn first(&self) -> Option<&Choice> {
        self.fit.choices.first()
    }

    /// The plan as a site: the first choice, laid out.
    pub fn site(&self) -> Result<Site, NoSite> {
        let Some(choice) = self.first() else {
            let first = self.fit.rejected.first();
            let why =
                first.map_or("it is empty".to_owned(), |one| format!("{}: {}", one.product, one.reason));
            return Err(NoSite::NothingFits(why));
        };
        let databases = self.demand.needs.databases.saturating_mul(self.demand.needs.copies.into());
        if databases > LAID_OUT_MAX {
            return Err(NoSite::TooLarge { databases, most: LAID_OUT_MAX });
        }
        let laid_out = layout::lay_out(&self.demand.needs, choice, &self.wishes);
        let mut site = Site::planned(self.users(), &self.demand.needs, choice, laid_out);
        let rules = self.demand.sheet.rules();
        let of_one =
            self.demand.sheet.get("LPD") * rules.value("log_file") / 1024.0 / self.demand.sheet.get("DBC");
        site.demand.log_gb_per_day = Some((of_one * 1000.0).round() / 1000.0);
        self.schedule(&mut site);
        self.line(&mut site);
        site.demand.log_days = Some(rules.value("log_retained_days") + rules.value("replay_lag_days"));
        Ok(site)
    }

    /// Snapshots as they were planned for, and what is kept free for them where databases lie.
    fn schedule(&self, site: &mut Site) {
        let rules = self.demand.sheet.rules();
        let (hours, kept) = (rules.value("snapshot_hours"), rules.value("snapshots_kept"));
        if kept < 1.0 {
            return;
        }
        let of_all = self.demand.needs.snapshot_reserve.get();
        let mut groups = Vec::new();
        for group in &mut site.groups {
            let volumes = site.volumes.iter().filter(|volume| volume.group == group.name);
            if !volumes.clone().any(|volume| volume.role.has_databases()) {
                continue;
            }
            // A pool keeps what its databases need.
            let with_databases = volumes.clone().filter(|volume| volume.role.has_databases());
            let databases: usize = with_databases.map(|volume| volume.databases.len()).sum();
            let reserve = of_all * databases as f64 / self.demand.needs.databases as f64;
            let taken: f64 = volumes.filter_map(|volume| volume.gb).sum();
            group.snapshot_reserve_percent = Some((reserve / (taken + reserve) * 1e5).round() / 1e3);
            groups.push(group.name.clone());
        }
        site.snapshots.push(Snapshots {
            name: "snapshots".to_owned(),
            groups,
            every_hours: Some(hours),
            keep: Some(kept as u32),
            retention_days: Some(hours * kept / 24.0),
            ..Snapshots::default()
        });
    }

    /// The line that was named, its round trip, and what is written while it is down.
    fn line(&self, site: &mut Site) {
        let Some(replication) = &mut site.replication else { return };
        let (sheet, rules) = (&self.demand.sheet, self.demand.sheet.rules());
        // What is written is rounded down, for room that was planned for it holds it.
        replication.change_gb_per_hour = Some((sheet.get("WRB") * 3600.0 / 1024.0 * 1000.0).floor() / 1000.0);
        replication.outage_hours = Some(rules.value("outage_hours"));
        if site.links.is_empty() {
            // Storage replicates to a place whose storage is not planned here: it is the same again.
            let (here, there) = (site.sites[0].name.clone(), "remote".to_owned());
            site.sites.push(Location { name: there.clone() });
            site.links.push(Link { name: "link".to_owned(), from: here, to: there, ..Link::default() });
            replication.link = "link".to_owned();
        }
        let link = &mut site.links[0];
        link.needed_mbit = Some((sheet.get("LNK") * 1000.0).round() / 1000.0);
        link.mbit_each = sheet.find("LINE").ok().map(|line| line[0].value);
        link.rtt_ms = Some(rules.value("link_rtt")).filter(|rtt| *rtt > 0.0);
    }

    /// Means over all tiers, by users.
    fn users(&self) -> Users {
        let sheet = &self.demand.sheet;
        let mean = |id: &str| {
            let of = |id: &str| sheet.all().iter().filter(|one| one.id == id).map(|one| one.value).collect();
            let (users, values): (Vec<f64>, Vec<f64>) = (of("NU"), of(id));
            let all: f64 = users.iter().zip(&values).map(|(users, value)| users * value).sum();
            Some((all / users.iter().sum::<f64>() * 1000.0).round() / 1000.0)
        };
        Users {
            mailboxes: Some(self.demand.needs.users),
            quota_mb: mean("MQ"),
            messages_per_day: mean("MSR"),
            message_kb: mean("AMS"),
            // As many as are at work at the busiest time, with their clients: what the demand is made of.
            iops_each: Some(round(
                self.demand.needs.database_iops.get()
                    / (1.0 + self.demand.needs.iops_headroom.get())
                    / self.demand.needs.users as f64,
            )),
            rules: sheet.rules().name.clone(),
            profile: String::new(),
        }
    }

    /// The plan for programs.
    pub fn for_programs(&self) -> ForPrograms<'_> {
        let rules = self.demand.sheet.rules();
        ForPrograms {
            format: "spindle-plan-1",
            rules: &rules.name,
            needs: &self.demand.needs,
            derived: self.demand.sheet.all(),
            figures: rules.figures(),
            curves: rules.curves(),
            choices: &self.fit.choices,
            rejected: &self.fit.rejected,
        }
    }

    /// Numbers that are no better than remembered or chosen, by how many there are of each.
    fn weak(&self) -> (usize, usize) {
        let all = self.demand.sheet.all();
        (all.iter().filter(|one| one.confidence >= Confidence::Recalled).count(), all.len())
    }
}

/// A plan as programs read it. Sizes are in GB or MB of 1024s, as `unit` says.
#[derive(Debug, Serialize)]
pub struct ForPrograms<'a> {
    format: &'static str,
    rules: &'a str,
    needs: &'a Needs,
    derived: &'a [Derived],
    figures: &'a [Figure],
    curves: &'a [Curve],
    choices: &'a [Choice],
    rejected: &'a [Rejected],
}
