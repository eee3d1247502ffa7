//! Hosts of a group: they write over NBD at whichever site serves them, and know what they were answered.
//!
//! Each writer has blocks of its own, and writes one command after the other, so at any moment a volume has a prefix of its
//! commands. When hosts are served again they look what is there, and go on from it.

use crate::dr_site::{DrSite, SITES, VOLUME_BYTES, VOLUMES};
use array::format::BLOCK_BYTES;
use futures_util::future::{join_all, select, select_all};
use nbd::Client;
use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{BlockDevice, Buffer, ByteOffset, IoResult, Moment, Random, Stability, World};

const WRITERS: usize = 3;
/// Blocks of each writer in each volume.
const WRITER_BLOCKS: u64 = VOLUME_BYTES / BLOCK_BYTES as u64 / WRITERS as u64;

/// A command: a run of blocks that carry its number.
#[derive(Clone, Debug)]
struct DrHostCommand {
    volume: usize,
    first: u64,
    count: u64,
    number: u64,
    /// It was never answered: a part of it may be there.
    is_partial: bool,
}

/// Commands of each writer, and how many of them were answered.
struct DrHostLedger {
    begun: Vec<Vec<DrHostCommand>>,
    answered: [usize; WRITERS],
    number: u64,
}

pub struct DrHosts {
    world: World,
    sites: [Rc<DrSite>; 2],
    ledger: RefCell<DrHostLedger>,
    /// The only site that may serve them, if the last verb says so.
    pub expected: Cell<Option<usize>>,
    /// Hosts ask this site alone: the group is gone.
    pub only: Cell<Option<usize>>,
    /// A failover may have lost what was answered.
    pub may_lose: Cell<bool>,
    pub is_over: Cell<bool>,
    /// It has ended.
    pub has_ended: Cell<bool>,
    last_site: Cell<Option<usize>>,
    last_answer: [Cell<Moment>; 2],
    /// Answered writes of each site.
    pub answers: [Cell<u64>; 2],
    /// The site where they are connected.
    pub works_at: Cell<Option<usize>>,
    /// The loss of a connection is seen within 200 µs.
    pub looks_closely: Cell<bool>,
}

impl DrHosts {
    pub fn new(world: &World, sites: &[Rc<DrSite>; 2]) -> Rc<Self> {
        let ledger = DrHostLedger { begun: vec![Vec::new(); WRITERS], answered: [0; WRITERS], number: 0 };
        Rc::new(Self {
            world: world.clone(),
            sites: sites.clone(),
            ledger: RefCell::new(ledger),
            expected: Cell::new(Some(0)),
            only: Cell::new(None),
            may_lose: Cell::new(false),
            is_over: Cell::new(false),
            has_ended: Cell::new(false),
            last_site: Cell::new(None),
            last_answer: Default::default(),
            answers: Default::default(),
            works_at: Cell::new(None),
            looks_closely: Cell::new(false),
        })
    }

    /// Looks for a site that serves, and works there until it does not.
    pub async fn live(self: Rc<Self>) {
        let mut random = self.world.random("hosts");
        while !self.is_over.get() {
            for site in 0..2 {
                let is_meant = self.only.get().is_none_or(|only| only == site);
                if is_meant && let Ok(clients) = self.connect(site).await {
                    self.work(site, &clients, &mut random).await;
                }
            }
            self.world.sleep(Duration::from_micros(2_000 + random.below(30_000))).await;
        }
        self.has_ended.set(true);
    }

    async fn connect(&self, site: usize) -> IoResult<Vec<Client>> {
        let mut clients = Vec::new();
        for volume in VOLUMES {
            clients.push(self.sites[site].connect(&self.world, volume).await?);
        }
        Ok(clients)
    }

    /// Works at a site until a command fails, or a connection is lost: a client would wait for its return.
    async fn work(&self, site: usize, clients: &[Client], random: &mut Random) {
        let working = async {
            // Commands of connections that broke are done or gone by then.
            self.world.sleep(Duration::from_millis(20)).await;
            let Some(contents) = read_all(clients).await else { return };
            self.go_on(site, &contents);
            self.works_at.set(Some(site));
            let writers = (0..WRITERS).map(|writer| {
                let random = Random::new(random.below(u64::MAX), "writer");
                Box::pin(self.write(site, clients, writer, random))
            });
            // One that fails ends all: the others may hang.
            select_all(writers).await;
        };
        select(pin!(working), pin!(self.watch(site, clients))).await;
        self.works_at.set(None);
    }

    /// Finds what is there, which is what they go on from.
    fn go_on(&self, site: usize, contents: &[Vec<u8>]) {
        let name = SITES[site];
        if let Some(expected) = self.expected.get() {
            assert_eq!(name, SITES[expected], "hosts are served at the other site than the last verb said");
        }
        let mut ledger = self.ledger.borrow_mut();
        let may_lose = self.may_lose.take();
        let counts = ledger.prefixes(contents, may_lose).unwrap_or_else(|why| panic!("{name}: {why}"));
        let is_other = self.last_site.replace(Some(site)) != Some(site);
        for (writer, &count) in counts.iter().enumerate() {
            let answered = ledger.answered[writer];
            assert!(
                may_lose || count >= answered,
                "{name}: writer {writer} was answered {answered} commands, and {count} are there"
            );
            let commands = &mut ledger.begun[writer];
            if is_other || may_lose {
                commands.truncate(count);
            }
            let is_answered = commands.len() <= answered && !may_lose;
            if let Some(last) = commands.last_mut().filter(|_| !is_answered) {
                last.is_partial = true;
            }
            ledger.answered[writer] = count;
        }
    }

    async fn write(&self, site: usize, clients: &[Client], writer: usize, mut random: Random) {
        while !self.is_over.get() && self.only.get().is_none_or(|only| only == site) {
            let (volume, count) = (random.below(2) as usize, 1 + random.below(6));
            let first = writer as u64 * WRITER_BLOCKS + random.below(WRITER_BLOCKS - count + 1);
            let number = {
                let mut ledger = self.ledger.borrow_mut();
                ledger.number += 1;
                let number = ledger.number;
                ledger.begun[writer].push(DrHostCommand { volume, first, count, number, is_partial: false });
                number
            };
            let block = Arc::new(Buffer::copy_of(&block_of(writer, number)));
            let payload = (0..count).map(|_| Arc::clone(&block)).collect();
            let (begun, at) = (self.world.now(), ByteOffset(first * BLOCK_BYTES as u64));
            if clients[volume].write(at, payload, Stability::Stable).await.is_err() {
                return;
            }
            self.note_answer(site, begun);
            {
                let mut ledger = self.ledger.borrow_mut();
                ledger.answered[writer] = ledger.begun[writer].len();
            }
            self.world.sleep(Duration::from_micros(random.below(120_000))).await;
        }
    }

    fn note_answer(&self, site: usize, begun: Moment) {
        self.answers[site].set(self.answers[site].get() + 1);
        self.last_answer[site].set(self.world.now());
        let others = self.last_answer[1 - site].get();
        assert!(others <= begun, "both sites answered writes at one moment: {others:?}, {begun:?}");
        if let Some(expected) = self.expected.get() {
            assert_eq!(
                SITES[site], SITES[expected],
                "a write was answered at the other site than the last verb said"
            );
        }
    }

    /// Watches the connections until one is lost. Meanwhile it asks the other site for the same volume, which that may not
    /// give.
    async fn watch(&self, site: usize, clients: &[Client]) {
        for round in 1_u64.. {
            let pause = if self.looks_closely.get() { 200 } else { 5_000 };
            self.world.sleep(Duration::from_micros(pause)).await;
            if clients.iter().any(|client| client.breaks() > 0) {
                return;
            }
            let (there, here) = (&self.sites[1 - site], &clients[0]);
            if !round.is_multiple_of(14) || self.only.get().is_some() {
                continue;
            }
            let Ok(other) = there.connect(&self.world, VOLUMES[0]).await else { continue };
            let breaks = here.breaks();
            if is_read(&other).await
                && is_read(here).await
                && is_read(&other).await
                && here.breaks() == breaks
            {
                panic!("both sites serve hosts: {} does, and {} does too", SITES[site], SITES[1 - site]);
            }
        }
    }

    /// Checks what both sites have in the end.
    pub fn check_end(&self, contents: &[Vec<u8>]) {
        let ledger = self.ledger.borrow();
        let may_lose = self.may_lose.get();
        let counts = ledger.prefixes(contents, may_lose).unwrap_or_else(|why| panic!("in the end: {why}"));
        for (writer, (&count, answered)) in counts.iter().zip(ledger.answered).enumerate() {
            assert!(
                count >= answered || may_lose,
                "in the end writer {writer} was answered {answered} commands, and {count} are there"
            );
        }
    }
}

pub async fn is_read(client: &Client) -> bool {
    client.read(ByteOffset(0), vec![Buffer::zeroed(BLOCK_BYTES)]).await.is_ok()
}

async fn read_all(clients: &[Client]) -> Option<Vec<Vec<u8>>> {
    let reads =
        clients.iter().map(|client| client.read(ByteOffset(0), vec![Buffer::zeroed(VOLUME_BYTES as usize)]));
    let read: Result<Vec<_>, _> = join_all(reads).await.into_iter().collect();
    Some(read.ok()?.into_iter().map(|mut buffers| buffers.remove(0).to_vec()).collect())
}

fn block_of(writer: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes[..8].copy_from_slice(&(writer as u64 + 1).to_le_bytes());
    bytes[BLOCK_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl DrHostLedger {
    /// The number of commands of each writer that are there. Of the last one there may be a part, if it was not answered or answers
    /// may be lost.
    fn prefixes(&self, contents: &[Vec<u8>], may_lose: bool) -> Result<Vec<usize>, String> {
        let whole = |writer: usize| if may_lose { 0 } else { self.answered[writer] };
        let all = self.begun.iter().enumerate();
        all.map(|(writer, commands)| prefix(writer, (commands, whole(writer)), contents)).collect()
    }
}

fn prefix(
    writer: usize,
    (commands, whole): (&[DrHostCommand], usize),
    contents: &[Vec<u8>],
) -> Result<usize, String> {
    let first = writer as u64 * WRITER_BLOCKS;
    let mut blocks = Vec::new();
    let mut last = 0;
    for (volume, index) in (0..contents.len())
        .flat_map(|volume| (first..first + WRITER_BLOCKS).map(move |index| (volume, index)))
    {
        let at = index as usize * BLOCK_BYTES;
        let block = &contents[volume][at..at + BLOCK_BYTES];
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let (by, number) = (number(0), number(BLOCK_BYTES - 8));
        let place = || format!("block {index} of volume {}", VOLUMES[volume]);
        if number != 0 {
            let found = commands.binary_search_by_key(&number, |command| command.number);
            let found = found.map_err(|_| {
                format!("{} is of command {number} of writer {writer}, which was lost", place())
            })?;
            last = last.max(found + 1);
        }
        if by != 0 && by != writer as u64 + 1 {
            return Err(format!("{} is of writer {by}", place()));
        }
        blocks.push((volume, index, number));
    }
    let misfit = |end: usize| {
        let is_wrong = |&&(volume, index, number): &&(usize, u64, u64)| {
            !possible((&commands[..end], whole), volume, index).contains(&number)
        };
        blocks.iter().find(is_wrong).copied()
    };
    match misfit(last) {
        None => Ok(last),
        Some((volume, index, number)) => Err(format!(
            "writer {writer} has {last} commands, and block {index} of volume {} is of number {number}, not one of {:?}",
            VOLUMES[volume],
            possible((&commands[..last], whole), volume, index)
        )),
    }
}

/// The numbers that a block may have after some commands, of which the first `whole` were answered.
fn possible((commands, whole): (&[DrHostCommand], usize), volume: usize, index: u64) -> Vec<u64> {
    let covers = |command: &DrHostCommand| {
        command.volume == volume && (command.first..command.first + command.count).contains(&index)
    };
    let mut numbers = Vec::new();
    for (at, command) in commands.iter().enumerate().rev().filter(|(_, command)| covers(command)) {
        numbers.push(command.number);
        if !command.is_partial && (at + 1 != commands.len() || at < whole) {
            return numbers;
        }
    }
    numbers.push(0);
    numbers
}
