//! A plan on one screen: the answer, what was found, what to buy by three aims, and how the first choice is laid out.

use super::StoragePlan;
use crate::{catalogue::Raid, fit::Choice, site::Group, units::counted};
use report::{Cell, Column, Document, Meta, Section, Table};

/// Products that are shown for each aim.
const PRODUCTS_SHOWN: usize = 3;
/// Groups of the layout that are shown.
const GROUPS_SHOWN: usize = 6;
/// Reasons that are shown where nothing carries it.
const REASONS_SHOWN: usize = 8;

/// By what somebody buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    FewestDrives,
    LeastCapacity,
    ClosestToNeed,
}

impl Aim {
    const ALL: [Self; 3] = [Self::FewestDrives, Self::LeastCapacity, Self::ClosestToNeed];

    fn word(self) -> &'static str {
        match self {
            Self::FewestDrives => "Fewest drives",
            Self::LeastCapacity => "Least raw capacity",
            Self::ClosestToNeed => "Closest to need",
        }
    }

    /// The less, the better.
    fn measure(self, choice: &Choice) -> f64 {
        match self {
            Self::FewestDrives => choice.drives() as f64,
            Self::LeastCapacity => raw_gb(choice),
            Self::ClosestToNeed => excess(choice),
        }
    }
}

/// All drives, spares included, as sold; of cloud volumes what they hold.
fn raw_gb(choice: &Choice) -> f64 {
    match choice.drive_size.get() > 0.0 {
        true => choice.drives() as f64 * choice.drive_size.get(),
        false => choice.capacity().as_sold().get(),
    }
}

/// Capacity and IOPS of a choice, each as a multiple of the need, multiplied.
fn excess(choice: &Choice) -> f64 {
    let needed: f64 = choice.groups.iter().map(|group| group.capacity_needed.get()).sum();
    let holds: f64 = choice.groups.iter().map(|group| group.capacity.get()).sum();
    let does = 1.0 + choice.headroom();
    holds / needed.max(1e-9) * if does.is_finite() { does } else { 1.0 }
}

impl StoragePlan {
    /// The plan on one screen; `site` is the file it was written to, if it was.
    pub fn summary(&self, meta: Meta, site: Option<&str>) -> Document {
        let mut document = self.headed(meta);
        match self.fit.choices.is_empty() {
            true => document.section(self.reasons()),
            false => {
                document.section(self.by_aim());
                document.section(self.layout_in_short());
            }
        }
        document.section(next(site, self.fit.choices.is_empty()));
        document
    }

    /// The best of each product, one line each, by three aims.
    fn by_aim(&self) -> Section {
        let mut table = Table::new(
            "",
            [
                Column::text("Choice"),
                Column::number("Drives", ""),
                Column::number("Raw", "GB"),
                Column::number("Holds", "GB"),
                Column::number("Spare IOPS", "%"),
            ],
        );
        let (of_cloud, of_drives): (Vec<&Choice>, Vec<&Choice>) =
            self.fit.choices.iter().partition(|choice| choice.raid == Raid::Inside);
        let by_aim = Aim::ALL.map(|aim| (aim.word(), best_by(aim, &of_drives)));
        let in_cloud = ("Cloud volumes, closest to need", best_by(Aim::ClosestToNeed, &of_cloud));
        for (title, choices) in by_aim.into_iter().chain([in_cloud]).filter(|(_, all)| !all.is_empty()) {
            table.push([Cell::text(title), Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty]);
            for choice in choices {
                table.push([
                    Cell::text(format!("\u{a0}\u{a0}{}", choice.shown().replace(" as sold", ""))),
                    Cell::count(choice.drives()),
                    Cell::number(raw_gb(choice), "GB", 0),
                    Cell::number(choice.capacity().get(), "GB", 0),
                    Cell::number(choice.headroom() * 100.0, "%", 0),
                ]);
            }
        }
        Section::new("What to buy", "").block(table)
    }

    fn layout_in_short(&self) -> Section {
        let title = "Layout of the choice with the fewest drives";
        let site = match self.site() {
            Ok(site) => site,
            Err(error) => return Section::new(title, "").paragraph(format!("Not laid out: {error}.")),
        };
        let mut table = Table::new(
            "",
            [
                Column::text("Group"),
                Column::text("Site"),
                Column::text("Drives"),
                Column::number("Holds", "GB"),
                Column::text("Volumes"),
            ],
        );
        for group in site.groups.iter().take(GROUPS_SHOWN) {
            table.push([
                Cell::text(&*group.name),
                Cell::text(&*group.site),
                Cell::text(drives(group)),
                group.usable_gb.map_or(Cell::Empty, |gb| Cell::number(gb, "GB", 0)),
                Cell::text(super::document::volumes_in(&site, group)),
            ]);
        }
        let section = Section::new(title, "").block(table);
        match site.groups.len().saturating_sub(GROUPS_SHOWN) {
            0 => section,
            more => section.paragraph(format!("And {} groups more.", counted(more as u64))),
        }
    }

    /// Why nothing carries it.
    fn reasons(&self) -> Section {
        let mut reasons: Vec<(&str, &str)> = Vec::new();
        for one in &self.fit.rejected {
            let is_known =
                reasons.iter().any(|(product, reason)| *product == one.product || *reason == one.reason);
            if !is_known && reasons.len() < REASONS_SHOWN {
                reasons.push((&one.product, &one.reason));
            }
        }
        let mut table = Table::new("", [Column::text("Not taken"), Column::text("Because")]);
        for (product, reason) in reasons {
            table.push([Cell::text(product), Cell::text(reason)]);
        }
        Section::new("What does not carry it", "").block(table)
    }
}

/// The best choice of each product by `aim`, the best product first.
fn best_by<'a>(aim: Aim, choices: &[&'a Choice]) -> Vec<&'a Choice> {
    let mut choices = choices.to_vec();
    // Stable: of two that are alike the one with fewer drives stays first.
    choices.sort_by(|a, b| aim.measure(a).total_cmp(&aim.measure(b)));
    let mut best: Vec<&Choice> = Vec::new();
    for choice in choices {
        if best.len() < PRODUCTS_SHOWN && !best.iter().any(|other| other.product == choice.product) {
            best.push(choice);
        }
    }
    best
}

fn drives(group: &Group) -> String {
    let spares = group.spares.filter(|spares| *spares > 0);
    let spares = spares.map_or(String::new(), |spares| format!(" + {} spare", counted(spares)));
    format!("{}{spares}, {}", group.drives.map_or("–".to_owned(), counted), group.raid.word())
}

fn next(site: Option<&str>, has_nothing: bool) -> Section {
    let all = "Every number with its formula, and all choices: --full, or --html FILE.";
    let next = match (site, has_nothing) {
        (_, true) => "Next: the same with --full says why of each product.".to_owned(),
        (Some(path), _) => format!("Next: spindle advise {path}"),
        (None, _) => "Next: the same with --site site.toml, then spindle advise site.toml".to_owned(),
    };
    Section::new("", "").paragraph(all).paragraph(next)
}
