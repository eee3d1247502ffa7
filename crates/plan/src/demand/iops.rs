//! Reads and writes a second, of databases, logs and maintenance: Dell 2010, tables 16 and 17; HP EVA8000, appendix A.

use super::{Mode, PlanInput};
use crate::{
    derivation::{Sheet, Step},
    figure::Confidence,
};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Reads and writes a second");
    let overhead = if input.mode == Mode::Copies { "1" } else { "stand_alone_iops" };
    sheet.derive(Step {
        id: "SDBO",
        title: "Overhead of databases without copies",
        unit: "x",
        formula: overhead,
        source: "Dell 2010, table 16, step 2: none with copies",
        confidence: Confidence::Seed,
    });
    sheet.derive_each(Step::seed(
        "IOPU",
        "Database I/O a mailbox",
        "IOPS",
        "SDBO * iops_per_mailbox(MSR)",
        "Dell 2010, table 16, step 3; HP EVA8000, appendix A, step 1",
    ));
    sheet.derive(Step::seed(
        "DBIOP",
        "Database I/O, as hosts ask for it",
        "IOPS",
        "total(NU * IOPU * CON * CLF) * (1 + iops_headroom)",
        "Dell 2010, table 16, step 4; concurrency from HP EVA8000, appendix A",
    ));
    sheet.derive(Step::seed(
        "DBRD",
        "Reads in it",
        "IOPS",
        "DBIOP * (1 - database_writes)",
        "HP EVA8000, appendix A, step 2",
    ));
    sheet.derive(Step::seed(
        "DBWR",
        "Writes in it",
        "IOPS",
        "DBIOP * database_writes",
        "HP EVA8000, appendix A, step 2",
    ));
    logs(sheet);
    sheet.derive(Step::plain(
        "MNT",
        "Reads of background maintenance",
        "IOPS",
        "DBC * maintenance_rate * 1024 / maintenance_read",
        "Dell 2010, section 3.3.3: more with every database",
    ));
}

fn logs(sheet: &mut Sheet) {
    sheet.derive(Step::seed(
        "LIOPS",
        "Log I/O",
        "IOPS",
        "(DBIOP * database_writes * log_writes + DBIOP * (COPIES - 1) * log_copy) * (1 + log_iops_headroom)",
        "Dell 2010, table 17, step 2",
    ));
    sheet.derive(Step::seed(
        "LOGW",
        "Writes in it",
        "IOPS",
        "DBIOP * database_writes * log_writes * (1 + log_iops_headroom)",
        "Dell 2010, table 17: the active copy's",
    ));
    sheet.derive(Step::seed(
        "LOGR",
        "Reads in it",
        "IOPS",
        "DBIOP * (COPIES - 1) * log_copy * (1 + log_iops_headroom)",
        "Dell 2010, table 17: for each further copy",
    ));
}
