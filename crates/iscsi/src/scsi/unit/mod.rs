//! A logical unit: commands in, what comes of them out.
//!
//! Invariants:
//!
//! 1. A command is answered once. What it finds wrong before it begins leaves everything as it was.
//! 2. What an initiator is to hear of (a reset, a reservation that is gone) it hears once, with the next command that does
//!    not just ask who is there.
//! 3. COMPARE AND WRITE and ORWRITE happen at once: nothing is written between what they read and what they write.

mod announcing;
mod asking;
mod copying;
mod loading;
mod media;
mod range;
mod reserving;

pub use self::announcing::Takes;

use self::{copying::Copied, loading::Loading};
use super::{
    commands::{self, Known, code},
    facts::Facts,
    mode::Mode,
    reservations::{Nexus, Refused, Reservations},
    sense::{AdditionalSense, Sense, SenseKey},
    thresholds::{Fill, THRESHOLDS, Thresholds, Watch},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use tokio::sync::RwLock;
use world::{BlockDevice, Buffer, IoError, IoErrorKind, Sparse, Stability};

/// Things an initiator may have to hear of at most; older ones are forgotten for a reset, which covers them.
const ATTENTIONS_MAX: usize = 16;

/// What is served, as a disk.
pub struct Unit {
    facts: Facts,
    device: Rc<dyn BlockDevice>,
    sparse: Option<Rc<dyn Sparse>>,
    reservations: RefCell<Reservations>,
    attentions: RefCell<BTreeMap<Nexus, VecDeque<AdditionalSense>>>,
    mode: Cell<Mode>,
    /// Of what it shares.
    watch: Option<Watch>,
    /// What became of copies that may be asked about, by who began them under which identifier.
    copies: RefCell<BTreeMap<(Nexus, u8), Copied>>,
    loading: RefCell<Loading>,
    /// Held by all who write, and alone by those who read and write at once.
    writing: RwLock<()>,
}

/// A command, with what it came with.
pub struct Asked<'a> {
    /// Who asks.
    pub nexus: &'a Nexus,
    /// Name of the target, as it is known to who asks.
    pub target: &'a str,
    /// The command descriptor block.
    pub cdb: &'a [u8],
    /// What is to be written, or parameters.
    pub data: Vec<Buffer>,
    /// All units there are, by number.
    pub units: &'a [u64],
    /// All units that who asks may use, by whichever target: EXTENDED COPY goes between them.
    pub reach: &'a [Reachable],
    /// Who asks may write.
    pub may_write: bool,
    /// It came with another number of bytes than it takes, and must not ([`Takes::Exactly`]).
    pub is_mismatched: bool,
}

/// A unit, as it is there for an initiator.
#[derive(Clone)]
pub struct Reachable {
    /// The unit.
    pub unit: Rc<Unit>,
    /// The initiator may write it.
    pub may_write: bool,
}

/// What a command gives.
#[derive(Debug)]
pub enum Data {
    /// Nothing.
    None,
    /// Parameters; as many as were asked for.
    Parameters(Vec<u8>),
    /// What was read.
    Blocks(Vec<Buffer>),
}

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    /// GOOD.
    Good(Data),
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

impl From<Sense> for Ended {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict => Self::Conflict,
            Refused::Check(sense) => Self::Check(sense),
        }
    }
}

/// How a command goes on inside: an end that is not good, as an error.
type Going<T> = Result<T, Ended>;

/// What a host is told of a device that failed.
fn failed(error: &IoError, is_write: bool) -> Ended {
    let (key, additional) = match error.kind() {
        IoErrorKind::NoSpace => (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED),
        IoErrorKind::ReadOnly => (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED),
        _ if is_write => (SenseKey::MediumError, AdditionalSense::WRITE_ERROR),
        _ => (SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR),
    };
    Sense::new(key, additional).into()
}

impl Unit {
    /// A unit over `device`; with `sparse`, the same device, it can be thin.
    ///
    /// # Panics
    ///
    /// If `facts` do not fit where they are shown, or blocks are smaller than the device's sectors.
    pub fn new(
        facts: Facts,
        device: Rc<dyn BlockDevice>,
        sparse: Option<Rc<dyn Sparse>>,
        has_write_cache: bool,
    ) -> Self {
        facts.check();
        assert!(facts.block_bytes.is_multiple_of(device.geometry().sector), "blocks are whole sectors");
        assert!(sparse.is_some() || !facts.is_thin, "who is thin knows where it holds nothing");
        let is_read_only = facts.is_read_only;
        let mode = Mode {
            has_write_cache,
            had_write_cache: has_write_cache,
            is_write_protected: false,
            is_read_only,
            thresholds: None,
            had_thresholds: None,
        };
        Self {
            facts,
            device,
            sparse,
            reservations: RefCell::default(),
            attentions: RefCell::default(),
            mode: Cell::new(mode),
            watch: None,
            copies: RefCell::default(),
            loading: RefCell::default(),
            writing: RwLock::new(()),
        }
    }

    /// The same, whose initiators hear when what it shares with others is used to so many percent.
    ///
    /// # Panics
    ///
    /// If it is not thin.
    pub fn with_thresholds(self, fill: Rc<dyn Fn() -> Fill>, percents: [u8; THRESHOLDS]) -> Self {
        assert!(self.facts.is_thin, "who is not thin has its room for itself");
        let thresholds = Some(Thresholds::at(percents, fill().total));
        let mode = Mode { thresholds, had_thresholds: thresholds, ..self.mode.get() };
        Self { mode: Cell::new(mode), watch: Some(Watch::new(fill)), ..self }
    }

    /// Tells initiators if what the unit shares has come to run low.
    fn look_at_room(&self, nexus: &Nexus) {
        let Some((watch, thresholds)) = self.watch.as_ref().zip(self.mode.get().thresholds) else { return };
        if watch.is_reached(&thresholds) {
            match thresholds.tells_one {
                true => self.tell(nexus, AdditionalSense::SOFT_THRESHOLD_REACHED),
                false => self.tell_others(None, AdditionalSense::SOFT_THRESHOLD_REACHED),
            }
        }
    }

    /// Blocks there are.
    fn blocks(&self) -> u64 {
        self.device.geometry().size.0 / u64::from(self.facts.block_bytes)
    }

    /// How a write is to be done, with FUA or without.
    fn stability(&self, is_fua: bool) -> Stability {
        if is_fua || !self.mode.get().has_write_cache { Stability::Stable } else { Stability::Volatile }
    }

    /// A session begins: its initiator hears that there was a reset, as after every power on.
    pub fn begin(&self, nexus: &Nexus) {
        self.loading.borrow_mut().allow(Some(nexus));
        self.attentions.borrow_mut().insert(nexus.clone(), [AdditionalSense::RESET_OCCURRED].into());
    }

    /// A session ended: what RESERVE(6) held for it is over, and its medium may be taken out.
    pub fn end(&self, nexus: &Nexus) {
        self.attentions.borrow_mut().remove(nexus);
        self.loading.borrow_mut().allow(Some(nexus));
        self.copies.borrow_mut().retain(|(asker, _), _| asker != nexus);
        self.reservations.borrow_mut().forget_legacy(Some(nexus));
    }

    /// The unit was reset, by `nexus` or by the target; all others hear of it.
    pub fn reset(&self, nexus: Option<&Nexus>) {
        self.reservations.borrow_mut().forget_legacy(None);
        self.loading.borrow_mut().allow(None);
        self.set_mode(self.mode.get().at_first());
        self.tell_others(nexus, AdditionalSense::RESET_OCCURRED);
    }

    fn set_mode(&self, mode: Mode) {
        let before = self.mode.replace(mode);
        if let Some(watch) = self.watch.as_ref().filter(|_| before.thresholds != mode.thresholds) {
            watch.rearm();
        }
    }

    /// The size of what is served has changed.
    pub fn resized(&self) {
        self.tell_others(None, AdditionalSense::CAPACITY_CHANGED);
    }

    fn tell_others(&self, nexus: Option<&Nexus>, what: AdditionalSense) {
        let others: Vec<Nexus> =
            self.attentions.borrow().keys().filter(|other| Some(*other) != nexus).cloned().collect();
        others.iter().for_each(|other| self.tell(other, what));
    }

    /// An initiator is to hear of that with its next command.
    pub fn tell(&self, nexus: &Nexus, what: AdditionalSense) {
        let mut attentions = self.attentions.borrow_mut();
        // Who is not there is told of a reset when it comes.
        let Some(queue) = attentions.get_mut(nexus) else { return };
        if queue.contains(&what) {
            return;
        }
        if queue.len() == ATTENTIONS_MAX {
            *queue = [AdditionalSense::RESET_OCCURRED].into();
        }
        queue.push_back(what);
    }

    fn attention_of(&self, nexus: &Nexus) -> Option<Sense> {
        let what = self.attentions.borrow_mut().get_mut(nexus)?.pop_front()?;
        Some(Sense::new(SenseKey::UnitAttention, what))
    }

    /// Does what is asked.
    pub async fn execute(&self, asked: Asked<'_>) -> Ended {
        match self.go(asked).await {
            Ok(data) => Ended::Good(data),
            Err(ended) => ended,
        }
    }

    async fn go(&self, asked: Asked<'_>) -> Going<Data> {
        let known = commands::find(asked.cdb)?;
        self.look_at_room(asked.nexus);
        let asks_who_is_there = matches!(known.code, code::INQUIRY | code::REPORT_LUNS | code::REQUEST_SENSE);
        if !asks_who_is_there && let Some(attention) = self.attention_of(asked.nexus) {
            return Err(attention.into());
        }
        self.reservations.borrow().check(asked.nexus, known.what)?;
        if writes_medium(known) {
            // Whatever else is wrong with it: who may not write hears that.
            self.check_may_write(&asked)?;
        }
        self.check_loaded(known)?;
        if asked.is_mismatched {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into());
        }
        match known.code {
            code::PERSISTENT_RESERVE_IN => self.reserve_in(&asked),
            code::PERSISTENT_RESERVE_OUT => self.reserve_out(&asked),
            code::RESERVE_6 => {
                Ok(self.reservations.borrow_mut().reserve_legacy(asked.nexus).map(|()| Data::None)?)
            }
            code::RELEASE_6 => {
                Ok(self.reservations.borrow_mut().release_legacy(asked.nexus).map(|()| Data::None)?)
            }
            _ if is_of_media(known) => self.use_medium(known, asked).await,
            _ => self.answer(known, asked),
        }
    }
}

/// Whether a command reads or writes blocks, or concerns them.
fn is_of_media(known: &Known) -> bool {
    !matches!(
        known.code,
        code::TEST_UNIT_READY
            | code::REQUEST_SENSE
            | code::INQUIRY
            | code::MODE_SELECT_6
            | code::MODE_SELECT_10
            | code::MODE_SENSE_6
            | code::MODE_SENSE_10
            | code::LOG_SENSE
            | code::READ_CAPACITY_10
            | code::REPORT_LUNS
            | code::MAINTENANCE_IN
            | code::PREVENT_ALLOW
            | code::READ_DEFECT_DATA_10
            | code::READ_DEFECT_DATA_12
            | code::RECEIVE_COPY_RESULTS
    ) && (known.code, known.service_action) != (code::SERVICE_ACTION_IN_16, Some(code::READ_CAPACITY_16))
}

/// Whether a command changes what is stored.
fn writes_medium(known: &Known) -> bool {
    matches!(
        known.code,
        code::WRITE_6
            | code::WRITE_10
            | code::WRITE_12
            | code::WRITE_16
            | code::WRITE_VERIFY_10
            | code::WRITE_VERIFY_12
            | code::WRITE_VERIFY_16
            | code::COMPARE_AND_WRITE
            | code::ORWRITE_16
            | code::WRITE_SAME_10
            | code::WRITE_SAME_16
            | code::UNMAP
    )
}

/// What is asked, as parameters: no more than there is room for.
fn parameters(mut bytes: Vec<u8>, room: usize) -> Data {
    bytes.truncate(room);
    Data::Parameters(bytes)
}

/// Bytes in buffers, none of which is empty.
pub(crate) fn pieces_of(bytes: &[u8]) -> Vec<Buffer> {
    if bytes.is_empty() { Vec::new() } else { vec![Buffer::copy_of(bytes)] }
}

/// What is in buffers, in one piece.
fn bytes_of(buffers: &[Buffer]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = buffers.iter().map(|buffer| &buffer[..]).collect();
    pieces.concat()
}

/// A parameter list, of as many bytes as its command says.
fn list_of(data: &[Buffer], length: usize) -> Vec<u8> {
    let mut list = bytes_of(data);
    list.truncate(length);
    list
}

fn be16(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}
