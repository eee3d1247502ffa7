//! A database whose bytes are all there, judged from its header to its trees.

use maildb::PageNumber;
use std::ops::ControlFlow;
use verify::{
    Finding,
    database::{DatabaseFacts, Owned, PageSource, Pages, SourceError, Tally, judge_headers, owned_extents},
    deep::{self, DeepVerdict},
};
use world::ByteCount;

/// The pages of a file in memory.
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

/// All that the judges say.
#[derive(Debug, PartialEq)]
pub struct Judged {
    pub facts: DatabaseFacts,
    pub header: Vec<Finding>,
    pub owned: Owned,
    pub tally: Tally,
    pub deep: DeepVerdict,
}

/// What the headers of a file say.
pub fn facts(file: &[u8]) -> (Option<DatabaseFacts>, Vec<Finding>) {
    let start = &file[..file.len().min(verify::kind::START_BYTES)];
    let verdict = judge_headers(start, ByteCount(file.len() as u64));
    (verdict.facts, verdict.findings)
}

/// Judges a file; none if neither header verifies.
pub fn judge(file: &[u8]) -> Option<Judged> {
    let (facts, header) = facts(file);
    let facts = facts?;
    let page_bytes = facts.page_size.bytes();
    let mut source = InMemory { file, page_bytes };
    let owned = owned_extents(&mut source, &facts).expect("nobody stops it");
    let pages = Pages::new(&facts, owned.clone(), ByteCount(file.len() as u64));
    let tally = pages.judge_chunk(PageNumber(1), file.get(2 * page_bytes..).unwrap_or_default());
    let deep = deep::walk(&mut source, &facts, &mut |_| ControlFlow::Continue(())).expect("nobody stops it");
    Some(Judged { facts, header, owned, tally, deep })
}

impl Judged {
    /// Every finding, in words.
    pub fn said(&self) -> Vec<String> {
        let all = self.header.iter().chain(&self.tally.findings).chain(&self.deep.findings);
        all.map(|finding| format!("{:?}: {finding}", finding.severity)).collect()
    }
}
