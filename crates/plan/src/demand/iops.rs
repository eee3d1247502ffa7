//! Reads and writes a second, of databases, logs and maintenance: Dell 2010, tables 16 and 17; HP EVA8000, appendix A.

use super::{Asked, Mode};
use crate::{
    derivation::{Sheet, Step},
    figure::Confidence,
};

pub(super) fn derive(sheet: &mut Sheet, asked: &Asked<'_>) {
    sheet.begin("Reads and writes a second");
    let overhead = if asked.mode == Mode::Copies { "1" } else { "stand_alone_iops" };
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
        "I/O/s",
        "SDBO * iops_per_mailbox(MSR)",
        "Dell 2010, table 16, step 3; HP EVA8000, appendix A, step 1",
    ));
    sheet.derive(Step::seed(
        "DBIOP",
        "Database I/O, as hosts ask for it",
        "I/O/s",
        "total(NU * IOPU * CON * CLF) * (1 + iops_headroom)",
        "Dell 2010, table 16, step 4; concurrency from HP EVA8000, appendix A",
    ));
    sheet.derive(Step::seed(
        "DBRD",
        "Reads in it",
        "I/O/s",
        "DBIOP * (1 - database_writes)",
        "HP EVA8000, appendix A, step 2",
    ));
    sheet.derive(Step::seed(
        "DBWR",
        "Writes in it",
        "I/O/s",
        "DBIOP * database_writes",
        "HP EVA8000, appendix A, step 2",
    ));
    logs(sheet);
    sheet.derive(Step::plain(
        "MNT",
        "Reads of background maintenance",
        "I/O/s",
        "DBC * maintenance_rate * 1024 / maintenance_read",
        "Dell 2010, section 3.3.3: more with every database",
    ));
}

fn logs(sheet: &mut Sheet) {
    sheet.derive(Step::seed(
        "LIOPS",
        "Log I/O",
        "I/O/s",
        "(DBIOP * database_writes * log_writes + DBIOP * (COPIES - 1) * log_copy) * (1 + log_iops_headroom)",
        "Dell 2010, table 17, step 2",
    ));
    sheet.derive(Step::seed(
        "LOGW",
        "Writes in it",
        "I/O/s",
        "DBIOP * database_writes * log_writes * (1 + log_iops_headroom)",
        "Dell 2010, table 17: the active copy's",
    ));
    sheet.derive(Step::seed(
        "LOGR",
        "Reads in it",
        "I/O/s",
        "DBIOP * (COPIES - 1) * log_copy * (1 + log_iops_headroom)",
        "Dell 2010, table 17: for each further copy",
    ));
}
