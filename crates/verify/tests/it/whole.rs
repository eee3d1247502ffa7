//! Runs all checks, from header to trees, on a database in memory.

use maildb::PageNumber;
use std::ops::ControlFlow;
use verify::{
    FileFinding,
    database::{
        DatabaseFacts, OwnedPages, PageChecker, PageSource, PageTally, SourceError, judge_headers,
        owned_extents,
    },
    deep::{self, TreeVerdict},
};
use world::ByteCount;

pub struct InMemory<'a> {
    pub file: &'a [u8],
    pub page_bytes: usize,
}

impl PageSource for InMemory<'_> {
    fn page(&mut self, page: PageNumber) -> Result<&[u8], SourceError> {
        let at = (page.0 as usize + 1) * self.page_bytes;
        self.file.get(at..at + self.page_bytes).ok_or(SourceError::Beyond)
    }
}

#[derive(Debug, PartialEq)]
pub struct Judged {
    pub facts: DatabaseFacts,
    pub header: Vec<FileFinding>,
    pub owned: OwnedPages,
    pub tally: PageTally,
    pub deep: TreeVerdict,
}

/// Checks the headers of a file.
pub fn facts(file: &[u8]) -> (Option<DatabaseFacts>, Vec<FileFinding>) {
    let start = &file[..file.len().min(verify::kind::START_BYTES)];
    let verdict = judge_headers(start, ByteCount(file.len() as u64));
    (verdict.facts, verdict.findings)
}

/// Checks a file; `None` if neither header verifies.
pub fn judge(file: &[u8]) -> Option<Judged> {
    let (facts, header) = facts(file);
    let facts = facts?;
    let page_bytes = facts.page_size.bytes();
    let mut source = InMemory { file, page_bytes };
    let owned = owned_extents(&mut source, &facts).expect("nobody stops it");
    let pages = PageChecker::new(&facts, owned.clone(), ByteCount(file.len() as u64));
    let tally = pages.judge_chunk(PageNumber(1), file.get(2 * page_bytes..).unwrap_or_default());
    let deep = deep::walk(&mut source, &facts, &mut |_| ControlFlow::Continue(())).expect("nobody stops it");
    Some(Judged { facts, header, owned, tally, deep })
}

impl Judged {
    /// Every finding as text.
    pub fn said(&self) -> Vec<String> {
        let all = self.header.iter().chain(&self.tally.findings).chain(&self.deep.findings);
        all.map(|finding| format!("{:?}: {finding}", finding.severity)).collect()
    }
}
