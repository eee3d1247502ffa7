//! The purchase of the first choice, derived on the sheet: every number of it has a formula.

use crate::{
    catalogue::{Raid, Redundancy},
    derivation::{Sheet, Step},
    figure::Confidence,
    fit::{ArraySizing, Choice, DriveRating, DriveSizing, GroupChoice, Purpose, SizedBy},
};

/// Databases whose maintenance was on an array when it was measured (Dell 2010, table 12, note a).
const MAINTAINED: &str = "4";

/// Names of the numbers of one group, and what it is for.
struct Ids {
    what: &'static str,
    /// Does, holds, costs a write.
    each: &'static str,
    holds: &'static str,
    penalty: &'static str,
    /// Storage groups of a pool at most, pools, storage groups and databases of one.
    storage_groups_max: &'static str,
    pools: &'static str,
    storage_groups: &'static str,
    databases: &'static str,
    /// I/O of drives for logs that lie here, drives for I/O, GB, drives of data, with redundancy.
    log_io: &'static str,
    for_io: &'static str,
    gb: &'static str,
    data: &'static str,
    for_capacity: &'static str,
    /// Drives or arrays of a pool, drives at work of all pools, spares of all pools.
    of_pool: &'static str,
    at_work: &'static str,
    spares: &'static str,
}

impl Ids {
    /// Formulas of the shares that one pool has: of all databases, and of all storage groups.
    fn shares(&self) -> (String, String) {
        (format!("{} / DBC", self.databases), format!("{} / SGC", self.storage_groups))
    }
}

const DATABASES: Ids = Ids {
    what: "databases",
    each: "EACH",
    holds: "HOLD",
    penalty: "PEN",
    storage_groups_max: "SGXD",
    pools: "PLSD",
    storage_groups: "SGPD",
    databases: "DBPD",
    log_io: "LRIO",
    for_io: "DIOD",
    gb: "GBD",
    data: "DATD",
    for_capacity: "CAPD",
    of_pool: "DRVD",
    at_work: "SPIN",
    spares: "SPRD",
};

const LOGS: Ids = Ids {
    what: "logs",
    each: "EACHL",
    holds: "HOLDL",
    penalty: "PENL",
    storage_groups_max: "SGXL",
    pools: "PLSL",
    storage_groups: "SGPL",
    databases: "DBPL",
    log_io: "LRIO",
    for_io: "DIOL",
    gb: "GBL",
    data: "DATL",
    for_capacity: "CAPL",
    of_pool: "DRVL",
    at_work: "SPINL",
    spares: "SPRL",
};

const BACKUPS: Ids = Ids {
    what: "backups",
    each: "EACHB",
    holds: "HOLDB",
    penalty: "PENB",
    storage_groups_max: "SGXB",
    pools: "PLSB",
    storage_groups: "SGPB",
    databases: "DBPB",
    log_io: "LRIOB",
    for_io: "DIOB",
    gb: "GBB",
    data: "DATB",
    for_capacity: "CAPB",
    of_pool: "DRVB",
    at_work: "SPINB",
    spares: "SPRB",
};

fn ids(purpose: Purpose) -> &'static Ids {
    match purpose {
        Purpose::Mail | Purpose::Databases => &DATABASES,
        Purpose::Logs => &LOGS,
        Purpose::Backup => &BACKUPS,
    }
}

/// Derives what `choice` takes.
pub(super) fn derive(sheet: &mut Sheet, choice: &Choice) {
    sheet.begin("Drives of the first choice");
    for group in &choice.groups {
        let mut of = Purchase { sheet, choice, group, ids: ids(group.purpose) };
        match &group.sized_by {
            SizedBy::Drives(by) => of.drives(by),
            SizedBy::Arrays(by) => of.arrays(by),
            SizedBy::Volumes => of.volumes(),
        }
    }
    let sum = |of_a_copy: bool| {
        let groups = choice.groups.iter().filter(|group| group.purpose.is_of_a_copy() == of_a_copy);
        let terms =
            groups.map(|group| format!("{} + {}", ids(group.purpose).at_work, ids(group.purpose).spares));
        terms.collect::<Vec<_>>().join(" + ")
    };
    let formula = match sum(false).as_str() {
        "" => format!("({}) * COPIES", sum(true)),
        backups => format!("({}) * COPIES + {backups}", sum(true)),
    };
    let title = "Drives, or cloud volumes, of all copies, spares included";
    let source = "a sum; backups are one for all copies";
    sheet.derive(Step {
        id: "DRVT",
        title,
        unit: "",
        formula: &formula,
        source,
        confidence: Confidence::Computed,
    });
}

struct Purchase<'a> {
    sheet: &'a mut Sheet,
    choice: &'a Choice,
    group: &'a GroupChoice,
    ids: &'static Ids,
}

impl Purchase<'_> {
    fn step(
        &mut self,
        id: &'static str,
        title: &'static str,
        unit: &'static str,
        formula: &str,
        source: &str,
    ) {
        let confidence = Confidence::Computed;
        self.sheet.derive(Step { id, title, unit, formula, source, confidence });
    }

    fn give(&mut self, id: &'static str, title: &'static str, unit: &'static str, value: f64, source: &str) {
        let confidence = self.choice.confidence;
        let step = Step { id, title, unit, formula: "", source: "", confidence };
        self.sheet.give(None, step, value, source);
    }

    /// Adds the rating of one drive or array. A figure set by the user replaces the catalogue's.
    fn rating(&mut self, title: &'static str, unit: &'static str, figure: &str, value: f64) {
        match self.sheet.rules().value(figure) > 0.0 {
            true => {
                self.step(self.ids.each, title, unit, figure, "what was set stands in for the catalogue's")
            }
            false => self.give(self.ids.each, title, unit, value, &self.choice.source.clone()),
        }
    }

    fn drives(&mut self, by: &DriveSizing) {
        let ids = self.ids;
        let is_backup = self.group.purpose == Purpose::Backup;
        self.give(ids.holds, "One drive holds", "GB", by.formatted.get(), &by.holds_source);
        self.pools(by.storage_groups_max);
        if !is_backup {
            self.io_of_drives(by);
        }
        self.capacity();
        let holds = format!("ceil({} / {})", ids.gb, ids.holds);
        self.step(
            ids.data,
            "Drives of a pool that hold it, without redundancy",
            "",
            &holds,
            "by what one holds",
        );
        let redundancy = &by.redundancy;
        let with_redundancy = of_level(redundancy, ids.data);
        let source = format!("{}: {}", redundancy.level.word(), redundancy.source);
        self.step(ids.for_capacity, "The same with redundancy", "", &with_redundancy, &source);
        let least = match is_backup {
            true => format!("max({}, {})", ids.for_capacity, by.least),
            false => format!("max({}, {}, {})", ids.for_io, ids.for_capacity, by.least),
        };
        // More drives than hold it may begin another set with parity of its own.
        let whole = match redundancy.set_drives {
            Some(_) => {
                let least = least.trim_end_matches(')');
                format!("{least}, {})", of_set(redundancy, ids.data, &format!("{least})")))
            }
            None => least,
        };
        let stepped = match by.step {
            1 => whole,
            step => format!("ceil({whole} / {step}) * {step}"),
        };
        self.step(
            ids.of_pool,
            "Drives of a pool",
            "",
            &stepped,
            "for I/O or for room, and the least there may be",
        );
        let all = format!("{} * {}", ids.pools, ids.of_pool);
        self.step(ids.at_work, at_work(ids), "", &all, "all pools of one copy");
        let spares = match (by.spares, redundancy.level) {
            (Some(spares), _) => format!("{} * {spares}", ids.pools),
            (None, Raid::Jbod) => {
                format!("max(ceil({} / drives_per_spare), 1)", ids.at_work)
            }
            (None, _) => format!("{} * max(ceil({} / drives_per_spare), 1)", ids.pools, ids.of_pool),
        };
        self.step(
            ids.spares,
            "Spares",
            "",
            &spares,
            "at least one a pool, and more of more drives; drives without RAID share theirs",
        );
    }

    /// I/O of drives, and how many do it.
    fn io_of_drives(&mut self, by: &DriveSizing) {
        let ids = self.ids;
        let (share, of_groups) = ids.shares();
        let is_mail = self.group.purpose == Purpose::Mail;
        let formula = match by.rating {
            DriveRating::AtHost(each) => {
                self.give(
                    ids.each,
                    "One drive does, at the host, redundancy in it",
                    "IOPS",
                    each.get(),
                    &self.choice.source.clone(),
                );
                let logs = if is_mail { format!(" + LIOPS * {of_groups}") } else { String::new() };
                format!("ceil(((DBIOP + MNT) * {share}{logs}) / {})", ids.each)
            }
            DriveRating::Sequential(_) => {
                self.penalty(&by.redundancy);
                let source = "one log write behind another, as long as drives are not too busy";
                let formula = "1000 * log_drive_use / log_write_time";
                self.step(ids.each, "Log writes a second of one drive", "IOPS", formula, source);
                self.log_io();
                format!("ceil({} * {of_groups} / {})", ids.log_io, ids.each)
            }
            DriveRating::Random(each) => {
                self.penalty(&by.redundancy);
                self.rating("One drive does, redundancy not yet in it", "IOPS", "drive_iops", each.get());
                let source = "HP EVA8000, appendix A, step 2; reads of maintenance beside";
                self.step("DRIO", "Database I/O, as drives do it", "IOPS", "DBRD + MNT + PEN * DBWR", source);
                let logs = if is_mail { format!(" + {} * {of_groups}", ids.log_io) } else { String::new() };
                if is_mail {
                    self.log_io();
                }
                format!("ceil((DRIO * {share}{logs}) / {})", ids.each)
            }
        };
        let source =
            "HP EVA8000, appendix A, example A: drives' I/O by drives', never by hosts' as in its example B";
        self.step(ids.for_io, "Drives of a pool that do its I/O", "", &formula, source);
    }

    fn penalty(&mut self, redundancy: &Redundancy) {
        let title = "I/O of drives that one write becomes";
        let step = Step {
            id: self.ids.penalty,
            title,
            unit: "x",
            formula: "",
            source: "",
            confidence: redundancy.confidence,
        };
        let source = format!("{}: {}", redundancy.level.word(), redundancy.source);
        self.sheet.give(None, step, redundancy.write_penalty, &source);
    }

    fn log_io(&mut self) {
        let formula = format!("LOGR + {} * LOGW", self.ids.penalty);
        self.step(
            self.ids.log_io,
            "Log I/O, as drives do it",
            "IOPS",
            &formula,
            "HP EVA8000, appendix A, step 2, for logs",
        );
    }

    /// Adds the number of pools and the load of the fullest one.
    fn pools(&mut self, storage_groups_max: Option<u64>) {
        let ids = self.ids;
        if self.group.purpose == Purpose::Backup {
            let step = Step {
                id: ids.pools,
                title: "Pools",
                unit: "",
                formula: "",
                source: "",
                confidence: Confidence::Computed,
            };
            self.sheet.give(
                None,
                step,
                self.group.pools.into(),
                "as few as have no more than pool_drives drives",
            );
            return;
        }
        match storage_groups_max {
            None => self.step(ids.pools, "Pools", "", "1", "one pool has no more than pool_drives drives"),
            Some(most) => {
                let step = Step {
                    id: ids.storage_groups_max,
                    title: "Storage groups of a pool, at most",
                    unit: "",
                    formula: "",
                    source: "",
                    confidence: Confidence::Computed,
                };
                self.sheet.give(
                    None,
                    step,
                    most as f64,
                    "with one more, a pool has more than pool_drives drives",
                );
                let formula = format!("ceil(SGC / {})", ids.storage_groups_max);
                self.step(ids.pools, "Pools", "", &formula, "as few as hold all storage groups");
            }
        }
        let groups = format!("ceil(SGC / {})", ids.pools);
        self.step(ids.storage_groups, "Storage groups of the fullest pool", "", &groups, "evenly divided");
        let databases = format!("min({} * databases_per_log, DBC)", ids.storage_groups);
        self.step(
            ids.databases,
            "Databases of the fullest pool",
            "",
            &databases,
            "those of its storage groups",
        );
    }

    /// Adds the capacity that a pool needs.
    fn capacity(&mut self) {
        let ids = self.ids;
        let of_databases = || format!("{0} * DVW + (RCAP + SNR) * {0} / DBC", ids.databases);
        let of_logs = || format!("{} * databases_per_log * LVW", ids.storage_groups);
        let formula = match self.group.purpose {
            Purpose::Mail => format!("{} + {}", of_databases(), of_logs()),
            Purpose::Databases => of_databases(),
            Purpose::Logs => of_logs(),
            Purpose::Backup => format!("(BKC + WHL) / {}", ids.pools),
        };
        self.step(
            ids.gb,
            "To be held by a pool",
            "GB",
            &formula,
            "volumes, and room to restore and for snapshots",
        );
    }

    fn arrays(&mut self, by: &ArraySizing) {
        let ids = self.ids;
        self.give(ids.holds, "One array holds", "GB", by.holds.get(), &by.holds_source);
        self.rating("One array does, at the host", "IOPS", "array_iops", by.does.get());
        self.pools(by.storage_groups_max);
        self.capacity();
        let (share, of_groups) = ids.shares();
        let streams = match self.group.purpose {
            Purpose::Mail if by.holds_logs => Some((format!("DBIOP * {share}"), true)),
            Purpose::Mail => Some((format!("(DBIOP * {share} + LIOPS * {of_groups})"), true)),
            Purpose::Databases => Some((format!("DBIOP * {share}"), true)),
            Purpose::Logs => Some((format!("LIOPS * {of_groups}"), false)),
            Purpose::Backup => None,
        };
        let room = format!("ceil({} / {})", ids.gb, ids.holds);
        let formula = match streams {
            None => format!("max({room}, 1)"),
            Some((streams, false)) => format!("max({room}, ceil({streams} / {}), 1)", ids.each),
            Some((streams, true)) => format!(
                "max({room}, ceil({streams} / {0}), ceil(({streams} + MNT * {share}) / ({0} + MNT / DBC * {MAINTAINED})), 1)",
                ids.each
            ),
        };
        let source = "for I/O or for room; each was measured with logs and the maintenance of 4 databases on it \
                      (Dell 2010, table 12)";
        self.step(ids.of_pool, "Arrays of a pool", "", &formula, source);
        let units = self.group.units.max(1);
        let of_array = |drives: u32| format!("{} * {} * {}", ids.pools, ids.of_pool, drives / units);
        self.step(
            ids.at_work,
            at_work(ids),
            "",
            &of_array(self.group.drives),
            "those of an array that are at work",
        );
        self.step(ids.spares, "Spares", "", &of_array(self.group.spares), "those of an array that are spare");
    }

    fn volumes(&mut self) {
        let ids = self.ids;
        let formula = match self.group.purpose {
            Purpose::Mail => "DBC + SGC".to_owned(),
            Purpose::Databases => "DBC".to_owned(),
            Purpose::Logs => "SGC".to_owned(),
            Purpose::Backup => self.group.drives.to_string(),
        };
        self.step(
            ids.at_work,
            "Cloud volumes, one copy",
            "",
            &formula,
            "one each; backups in as few as hold them",
        );
        self.step(ids.spares, "Spares", "", "0", "the provider has them");
    }
}

fn at_work(ids: &Ids) -> &'static str {
    match ids.what {
        "databases" => "Drives at work for databases, one copy",
        "logs" => "Drives at work for logs, one copy",
        _ => "Drives at work for backups",
    }
}

/// The least drives that hold data of `data` drives.
fn of_level(redundancy: &Redundancy, data: &str) -> String {
    match (redundancy.set_drives, redundancy.level.is_mirrored()) {
        (Some(set), _) => {
            let parity = redundancy.set_parity;
            format!("{data} + {} * {parity}", sets(redundancy, &format!("ceil({data} / {})", set - parity)))
        }
        (None, true) => format!("{data} * 2"),
        (None, false) => data.to_owned(),
    }
}

/// Drives that hold data of `data` drives in as many sets as `drives` make.
fn of_set(redundancy: &Redundancy, data: &str, drives: &str) -> String {
    let set = redundancy.set_drives.expect("a level with sets");
    format!("{data} + {} * {}", sets(redundancy, &format!("ceil({drives} / {set})")), redundancy.set_parity)
}

/// So many sets, or the least there are.
fn sets(redundancy: &Redundancy, count: &str) -> String {
    match redundancy.min_sets {
        1 => count.to_owned(),
        least => format!("max({count}, {least})"),
    }
}
