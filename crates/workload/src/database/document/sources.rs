//! Full titles of the cited papers.

use report::{KeyValues, Section};

/// Short names of the papers in limits and profiles, as in docs/sources.md, with their titles.
const PAPERS: [(&str, &str); 5] = [
    (
        "HP Continuous Access",
        "HP: Replicating Microsoft Exchange 2003 using StorageWorks Continuous Access and the Enterprise Virtual Array",
    ),
    (
        "HP EVA8000",
        "HP: best practices for Exchange Server 2003 on the StorageWorks 8000 Enterprise Virtual Array",
    ),
    ("AMI 2008", "AMI: StorTrends IP-SAN 3200i storage solution for Microsoft Exchange Server (ESRP), 2008"),
    ("IBM 2008", "IBM: Exchange Server 2007 with System Storage N series and SnapManager for Exchange, 2008"),
    (
        "Dell 2010",
        "Dell: Sizing and Best Practices for Deploying Microsoft Exchange Server 2010 on VMware vSphere and \
         Dell EqualLogic Storage, 2010",
    ),
];

pub fn sources() -> Section {
    let intro =
        "White papers that limits and profiles are taken from; other sources are named where they are used.";
    let papers = PAPERS.iter().fold(KeyValues::default(), |rows, (name, title)| rows.row(*name, *title));
    Section::new("Sources", intro).block(papers)
}
