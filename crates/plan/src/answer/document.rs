//! A plan as a document: the answer first, then every number, then what was chosen from, then the figures behind it.

use super::StoragePlan;
use crate::{
    catalogue::Raid,
    derivation::Derived,
    figure::Confidence,
    fit::GroupChoice,
    site::{Group, Role, Site},
    units::{counted, shown},
};
use report::{Cell, Column, Document, KeyValues, Meta, Section, Severity, Table, prose};

/// Choices that are shown; the others are as many words.
const CHOICES_SHOWN: usize = 12;

impl StoragePlan {
    /// The plan as a document, with every number.
    pub fn document(&self, meta: Meta) -> Document {
        let mut document = self.headed(meta);
        for activity in self.activities() {
            document.section(self.derived(activity));
        }
        document.section(self.choices());
        document.section(self.layout());
        document.section(self.rejected());
        document.section(self.figures());
        document.section(trust());
        document
    }

    /// The answer and what was found.
    pub(super) fn headed(&self, meta: Meta) -> Document {
        let rules = self.demand.sheet.rules();
        let needs = &self.demand.needs;
        let subtitle = format!(
            "{} on {}, {}",
            prose::counted(needs.users, "mailbox"),
            rules.title,
            match needs.copies {
                1 => format!("one copy, mode {}", needs.mode.word()),
                copies => format!("{copies} copies of each database"),
            }
        );
        let mut document = Document::new("Storage plan", subtitle, meta);
        self.highlights(&mut document);
        self.findings(&mut document);
        document
    }

    fn highlights(&self, document: &mut Document) {
        let needs = &self.demand.needs;
        let of = |value: f64, unit: &str| Cell::text(format!("{} {unit}", prose::number(value, 0)));
        document.highlight(
            "Databases",
            Cell::count(needs.databases),
            format!("of {} GB of mail each", prose::number(needs.database.get(), 0)),
        );
        document.highlight("Mail", of(self.demand.sheet.get("DBS"), "GB"), "in all databases of one copy");
        document.highlight(
            "Volumes",
            of(needs.provisioned().get(), "GB"),
            format!(
                "one copy: {} GB a database, {} GB its log",
                prose::number(needs.database_volume.get(), 0),
                prose::number(needs.log_volume.get(), 0)
            ),
        );
        document.highlight(
            "Database I/O",
            of(needs.database_iops.get(), "IOPS"),
            format!(
                "{} % reads, {} % headroom in it; logs {} more",
                prose::number(needs.database_read_share.get() * 100.0, 0),
                prose::number(needs.iops_headroom.get() * 100.0, 0),
                prose::number(needs.log_iops.get(), 0)
            ),
        );
        let (storage, note) = match self.first() {
            Some(choice) => {
                let kind = if choice.raid == Raid::Inside { "volumes" } else { "drives" };
                let note = format!("{}: the choice with the fewest", choice.shown());
                (Cell::text(format!("{} {kind}", prose::number(choice.drives() as f64, 0))), note)
            }
            None => (Cell::text("none"), "nothing in the catalogue carries this".to_owned()),
        };
        document.highlight("Storage", storage, note);
    }

    fn findings(&self, document: &mut Document) {
        let sheet = &self.demand.sheet;
        let value = |id: &str| sheet.all().iter().find(|one| one.id == id).map(|one| one.value);
        if self.fit.choices.is_empty() {
            let text = "Nothing in the catalogue carries this; the reasons are below. Plan a part of the users, or \
                        wish for less.";
            document.finding(Severity::Error, text, "");
        }
        if let (Some(line), Some(needed)) = (value("LINE"), value("LNK"))
            && needed > line
        {
            let text =
                format!("The line is too slow: {} Mb/s are needed, it has {}.", shown(needed), shown(line));
            document.finding(Severity::Warning, text, "LNK, LINE");
        }
        if let (Some(hours), Some(percent)) = (value("BKT"), value("BKW"))
            && percent > 100.0
        {
            let copies = self.demand.needs.copies;
            let instead = match copies {
                1 => "or copies",
                2 => "or a third copy, which makes backups optional",
                _ => "or none at all: three copies make backups optional",
            };
            let text = format!(
                "A full backup takes {} h, {} % of its window: more streams (--set backup_streams=N), {instead}.",
                shown(hours),
                prose::number(percent, 0)
            );
            let severity = if copies < 3 { Severity::Warning } else { Severity::Note };
            document.finding(severity, text, "BKT, BKW; Microsoft, disaster-recovery: three copies or more");
        }
        let (weak, all) = self.weak();
        if weak > 0 {
            let text = format!(
                "{weak} of {all} numbers rest on figures that are remembered or were chosen here; they are marked, and \
                 --set gives better ones."
            );
            document.finding(Severity::Note, text, "");
        }
    }

    /// The parts of the plan, in order.
    fn activities(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = Vec::new();
        for one in self.demand.sheet.all() {
            if !all.contains(&one.activity) {
                all.push(one.activity);
            }
        }
        all
    }

    fn derived(&self, activity: &'static str) -> Section {
        let mut table = Table::new(
            "",
            [
                Column::text(""),
                Column::text("What"),
                Column { align: report::Align::Right, ..Column::text("Result") },
                Column::text("Formula, and the numbers put in"),
                Column::text("Source"),
                Column::text("Trust"),
            ],
        );
        for one in self.demand.sheet.all().iter().filter(|one| one.activity == activity) {
            table.push([
                Cell::text(one.id),
                Cell::text(titled(one)),
                // One word, so that a narrow table does not part a number from its unit.
                Cell::text(one.shown().replace(' ', "\u{a0}")),
                Cell::text(computed(one)),
                Cell::text(&*one.source),
                Cell::text(one.confidence.word()),
            ]);
        }
        Section::new(activity, "").block(table)
    }

    fn choices(&self) -> Section {
        let mut table = Table::new(
            "",
            [
                Column::text("Choice"),
                Column::number("Drives", ""),
                Column::number("Spares", ""),
                Column::number("Holds", "GB"),
                Column::number("I/O headroom", "%"),
                Column::text("Groups of one copy, and for backups"),
                Column::text("Trust"),
            ],
        );
        for choice in self.fit.choices.iter().take(CHOICES_SHOWN) {
            table.push([
                Cell::text(choice.shown()),
                Cell::count(choice.drives()),
                Cell::count(choice.spares()),
                Cell::number(choice.capacity().get(), "GB", 0),
                Cell::number(choice.headroom() * 100.0, "%", 0),
                Cell::text(choice.groups.iter().map(group).collect::<Vec<_>>().join("; ")),
                Cell::text(choice.confidence.word()),
            ]);
        }
        let more = self.fit.choices.len().saturating_sub(CHOICES_SHOWN);
        let intro = match (self.fit.choices.len(), more) {
            (0, _) => "Nothing carries it.".to_owned(),
            (count, 0) => format!("{}, the fewest drives first.", prose::counted(count as u64, "choice")),
            (count, _) => {
                format!(
                    "{}, the fewest drives first; the others are in --json.",
                    prose::counted(count as u64, "choice")
                )
            }
        };
        let section = Section::new("What carries it", intro);
        if self.fit.choices.is_empty() { section } else { section.block(table) }
    }

    /// The first choice, laid out: what lies in each group.
    fn layout(&self) -> Section {
        let title = "How the first choice is laid out";
        let site = match self.site() {
            Ok(site) => site,
            Err(error) => return Section::new(title, "").paragraph(format!("Not laid out: {error}.")),
        };
        let mut table = Table::new(
            "",
            [
                Column::text("Group"),
                Column::text("Site"),
                Column::number("Drives", ""),
                Column::number("Spares", ""),
                Column::text("RAID"),
                Column::number("Holds", "GB"),
                Column::text("Volumes"),
            ],
        );
        for group in &site.groups {
            table.push([
                Cell::text(&*group.name),
                Cell::text(&*group.site),
                group.drives.map_or(Cell::Empty, |count| Cell::count(count.into())),
                group.spares.map_or(Cell::Empty, |count| Cell::count(count.into())),
                Cell::text(group.raid.word()),
                group.usable_gb.map_or(Cell::Empty, |gb| Cell::number(gb, "GB", 0)),
                Cell::text(volumes_in(&site, group)),
            ]);
        }
        let intro = "A volume for each database and one for each log; no copy shares a group with its active one. \
                     --site FILE writes all of it.";
        Section::new(title, intro).block(table)
    }

    fn rejected(&self) -> Section {
        let mut table = Table::new("", [Column::text("Not taken"), Column::text("Because")]);
        let mut reasons: Vec<(String, &str)> = Vec::new();
        for one in &self.fit.rejected {
            let size = one.drive_size.map(|size| format!(" {size}")).unwrap_or_default();
            let raid = one.raid.map(|raid| format!(" {}", raid.word())).unwrap_or_default();
            match reasons.iter_mut().find(|(_, reason)| *reason == one.reason) {
                Some((names, _)) if names.len() < 300 => {
                    names.push_str(&format!("; {}{size}{raid}", one.product));
                }
                _ => reasons.push((format!("{}{size}{raid}", one.product), &one.reason)),
            }
        }
        for (names, reason) in reasons {
            table.push([Cell::text(names), Cell::text(reason)]);
        }
        let section = Section::new("What does not", "Each with its reason.");
        if table.rows().is_empty() {
            section.paragraph("Everything carries it.")
        } else {
            section.block(table)
        }
    }

    /// The figures behind this plan: those that a formula named.
    fn figures(&self) -> Section {
        let sheet = &self.demand.sheet;
        let named =
            |key: &str| sheet.all().iter().any(|one| one.inputs.iter().any(|input| input.name == key));
        let mut table = Table::new(
            "",
            [
                Column::text("Figure"),
                Column::text("Value"),
                Column::text("Means"),
                Column::text("Source"),
                Column::text("Trust"),
            ],
        );
        let mut push = |key: &str, value: String, means: &str, source: &str, trust: Confidence| {
            let cells = [key, &value, means, source, trust.word()];
            table.push(cells.map(Cell::text));
        };
        for one in sheet.rules().figures().iter().filter(|figure| named(&figure.key)) {
            push(&one.key, one.shown().replace(' ', "\u{a0}"), &one.meaning, &one.source, one.confidence);
        }
        for one in sheet.rules().curves().iter().filter(|curve| named(&curve.key)) {
            let means = format!("{}, by {}", one.meaning, one.by);
            push(&one.key, one.shown(), &means, &one.source, one.confidence);
        }
        let intro = "Each can be changed: --set KEY=VALUE, [set] of a profile, or a file given with --rules.";
        Section::new("Figures", intro).block(table)
    }
}

/// Volumes in `group`, by their role: `7 databases, 4 active; 7 logs, 4 active`.
pub(super) fn volumes_in(site: &Site, group: &Group) -> String {
    let roles = [
        (Role::Database, "database"),
        (Role::Log, "log"),
        (Role::Backup, "backup volume"),
        (Role::WriteHistory, "write history volume"),
    ];
    let of_role = |(role, word): (Role, &str)| {
        let volumes = site.volumes.iter().filter(|one| one.group == group.name && one.role == role);
        let (count, active) = volumes
            .fold((0_u64, 0_u64), |(count, active), one| (count + 1, active + u64::from(one.copy == 1)));
        let active = if site.databases.has_copies() { format!(", {active} active") } else { String::new() };
        (count > 0).then(|| format!("{}{active}", prose::counted(count, word)))
    };
    roles.into_iter().filter_map(of_role).collect::<Vec<_>>().join("; ")
}

fn titled(one: &Derived) -> String {
    match &one.tier {
        Some(tier) => format!("{} ({tier})", one.title),
        None => one.title.to_owned(),
    }
}

/// The formula with names, and with numbers.
fn computed(one: &Derived) -> String {
    match one.formula.is_empty() {
        true => String::new(),
        false if one.formula == one.put_in => one.formula.clone(),
        false => format!("{} = {}", one.formula, one.put_in.replace(" %", "\u{a0}%")),
    }
}

fn group(group: &GroupChoice) -> String {
    let spares = if group.spares > 0 { format!(" + {} spare", counted(group.spares)) } else { String::new() };
    let drives = match group.pools {
        1 => counted(group.drives),
        pools => format!("{} x {}", counted(pools), counted(group.drives / pools)),
    };
    format!("{} {drives}{spares} {}", group.purpose.word(), group.raid.word())
}

fn trust() -> Section {
    let words = Confidence::ALL
        .into_iter()
        .fold(KeyValues::default(), |rows, mark| rows.row(mark.word(), Cell::text(mark.meaning())));
    let intro = "How far a number can be trusted; what rests on several is as good as the worst of them. GB, MB and KB \
                 count in 1024s, as mail servers do; drives as sold in 1000s.";
    Section::new("Trust", intro).block(words)
}
