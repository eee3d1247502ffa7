//! A logical unit: executes commands.
//!
//! Invariants:
//!
//! 1. A command is answered once. A command rejected before its execution has no effect.
//! 2. Each unit attention is reported once to each nexus, with its next command other than INQUIRY, REPORT
//!    LUNS and REQUEST SENSE.
//! 3. A command of an initiator from which the unit is withheld accesses nothing.
//! 4. COMPARE AND WRITE and ORWRITE are atomic: no other write comes between their read and their write.

mod extended_copy;
mod medium;
mod non_medium;
mod persistent_reserve;
mod range;
mod removable_medium;
mod transfer_length;

pub use self::transfer_length::TransferLength;

use self::{extended_copy::CopyProgress, removable_medium::RemovableMedium};
use super::{
    commands::{self, SupportedCommand, code},
    identity::UnitIdentity,
    mode::ModeSettings,
    properties::UnitProperties,
    reservations::{Nexus, ReservationError, Reservations},
    sense::{AdditionalSense, Sense, SenseKey},
    thresholds::{SpaceUsage, THRESHOLDS, ThresholdMonitor, Thresholds},
    withholding::{SessionEnd, Withholding},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use tokio::sync::{Notify, RwLock};
use world::{BlockDevice, Buffer, IoError, IoErrorKind, SampledLatencies, Sparse, Stability};

/// Most pending unit attentions of a nexus; if more arise, RESET OCCURRED replaces them all.
const ATTENTIONS_MAX: usize = 16;

/// A block device served as a disk.
pub struct LogicalUnit {
    properties: UnitProperties,
    device: Rc<dyn BlockDevice>,
    sparse: Option<Rc<dyn Sparse>>,
    reservations: RefCell<Reservations>,
    attentions: RefCell<BTreeMap<Nexus, VecDeque<AdditionalSense>>>,
    mode: Cell<ModeSettings>,
    watch: Option<ThresholdMonitor>,
    /// Results for RECEIVE COPY RESULTS, by nexus and list identifier.
    copies: RefCell<BTreeMap<(Nexus, u8), CopyProgress>>,
    removable_medium: RefCell<RemovableMedium>,
    withholding: RefCell<Withholding>,
    are_all_kept_out: Cell<bool>,
    /// Commands being executed, and copies that write here.
    executing: Cell<usize>,
    idle: Notify,
    /// Shared by writes; exclusive for commands that read and write atomically.
    writing: RwLock<()>,
    is_exclusive: bool,
}

/// A command with its data-out.
pub struct ScsiRequest<'a> {
    pub nexus: &'a Nexus,
    /// Name of the target the command came through, for VPD page 83h.
    pub target: &'a str,
    pub cdb: &'a [u8],
    /// Data-out: blocks or a parameter list.
    pub data: Vec<Buffer>,
    /// LUNs of the target, for REPORT LUNS.
    pub units: &'a [u64],
    /// All units the initiator may use through any target, for EXTENDED COPY.
    pub reach: &'a [AccessibleUnit],
    /// The initiator has the right to write.
    pub may_write: bool,
    /// The initiator announced another length than the CDB demands ([`TransferLength::Exactly`]).
    pub is_mismatched: bool,
}

/// A unit an initiator may use, with its right.
#[derive(Clone)]
pub struct AccessibleUnit {
    pub unit: Rc<LogicalUnit>,
    pub may_write: bool,
}

/// Data-in of a command.
#[derive(Debug)]
pub enum ResponseData {
    None,
    /// Parameter data, cut to the allocation length.
    Parameters(Vec<u8>),
    Blocks(Vec<Buffer>),
}

/// Status of a command (SAM-5, 5.3).
#[derive(Debug)]
pub enum CommandStatus {
    Good(ResponseData),
    CheckCondition(Sense),
    ReservationConflict,
    /// No status: the data are elsewhere by now. The session is to end, so that its initiator logs in where they are and sends again
    /// what was not answered.
    Moved,
}

impl From<Sense> for CommandStatus {
    fn from(sense: Sense) -> Self {
        Self::CheckCondition(sense)
    }
}

impl From<ReservationError> for CommandStatus {
    fn from(refused: ReservationError) -> Self {
        match refused {
            ReservationError::Conflict => Self::ReservationConflict,
            ReservationError::Check(sense) => Self::CheckCondition(sense),
        }
    }
}

/// `Err` is a status other than GOOD.
type UnitResult<T> = Result<T, CommandStatus>;

/// The sense of a failed device operation.
fn failed(error: &IoError, is_write: bool) -> CommandStatus {
    let (key, additional) = match error.kind() {
        IoErrorKind::Moved => return CommandStatus::Moved,
        IoErrorKind::NoSpace => (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED),
        IoErrorKind::ReadOnly => (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED),
        _ if is_write => (SenseKey::MediumError, AdditionalSense::WRITE_ERROR),
        _ => (SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR),
    };
    Sense::new(key, additional).into()
}

impl LogicalUnit {
    /// A unit backed by `device`. `sparse` is the same device; thin provisioning needs it.
    ///
    /// # Panics
    ///
    /// If `properties` do not fit their fields, or blocks are smaller than the device's sectors.
    pub fn new(
        properties: UnitProperties,
        device: Rc<dyn BlockDevice>,
        sparse: Option<Rc<dyn Sparse>>,
        has_write_cache: bool,
    ) -> Self {
        properties.check();
        assert!(properties.block_bytes.is_multiple_of(device.geometry().sector), "blocks are whole sectors");
        assert!(sparse.is_some() || !properties.is_thin, "who is thin knows where it holds nothing");
        let is_read_only = properties.is_read_only;
        let mode = ModeSettings {
            has_write_cache,
            had_write_cache: has_write_cache,
            is_write_protected: false,
            is_read_only,
            thresholds: None,
            had_thresholds: None,
        };
        Self {
            properties,
            device,
            sparse,
            reservations: RefCell::default(),
            attentions: RefCell::default(),
            mode: Cell::new(mode),
            watch: None,
            copies: RefCell::default(),
            removable_medium: RefCell::default(),
            withholding: RefCell::default(),
            are_all_kept_out: Cell::new(false),
            executing: Cell::new(0),
            idle: Notify::new(),
            writing: RwLock::new(()),
            is_exclusive: false,
        }
    }

    /// Counts how long responses wait until they are sent, if somebody wants to know.
    pub fn replies(&self) -> Option<Rc<SampledLatencies>> {
        self.device.replies()
    }

    /// Enables provisioning thresholds at `percents` of the pool.
    ///
    /// # Panics
    ///
    /// If the unit is not thin.
    pub fn with_thresholds(self, fill: Rc<dyn Fn() -> SpaceUsage>, percents: [u8; THRESHOLDS]) -> Self {
        assert!(self.properties.is_thin, "who is not thin has its room for itself");
        let thresholds = Some(Thresholds::at(percents, fill().total));
        let mode = ModeSettings { thresholds, had_thresholds: thresholds, ..self.mode.get() };
        Self { mode: Cell::new(mode), watch: Some(ThresholdMonitor::new(fill)), ..self }
    }

    /// Serves one initiator name at a time; a login of a second one is refused. A read-only unit serves all: they cannot harm
    /// each other.
    pub fn exclusive(self) -> Self {
        Self { is_exclusive: !self.properties.is_read_only, ..self }
    }

    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    pub fn identity(&self) -> UnitIdentity {
        self.properties.identity
    }

    /// Establishes unit attentions for thresholds that usage has reached.
    fn check_thresholds(&self, nexus: &Nexus) {
        let Some((watch, thresholds)) = self.watch.as_ref().zip(self.mode.get().thresholds) else { return };
        if watch.is_reached(&thresholds) {
            if thresholds.tells_one {
                self.raise_attention(nexus, AdditionalSense::SOFT_THRESHOLD_REACHED)
            } else {
                self.raise_attention_for_others(None, AdditionalSense::SOFT_THRESHOLD_REACHED)
            }
        }
    }

    fn blocks(&self) -> u64 {
        self.device.geometry().size.0 / u64::from(self.properties.block_bytes)
    }

    /// Durability a write must have before it is acknowledged.
    fn stability(&self, is_fua: bool) -> Stability {
        if is_fua || !self.mode.get().has_write_cache { Stability::Stable } else { Stability::Volatile }
    }

    /// A nexus begins: RESET OCCURRED is pending for it, as after power on.
    pub fn begin_session(&self, nexus: &Nexus) {
        if self.withholding.borrow_mut().begin_session(nexus) {
            self.end_nexus(nexus);
        }
        self.removable_medium.borrow_mut().allow(Some(nexus));
        self.attentions.borrow_mut().insert(nexus.clone(), [AdditionalSense::RESET_OCCURRED].into());
    }

    /// A nexus ends: its RESERVE(6) reservation, its PREVENT and its copy results go with it.
    pub fn end_session(&self, nexus: &Nexus, end: SessionEnd) {
        if self.withholding.borrow_mut().end_session(nexus, end) {
            self.end_nexus(nexus);
        }
    }

    /// The last session of a nexus has ended, or another one has taken its place.
    fn end_nexus(&self, nexus: &Nexus) {
        self.attentions.borrow_mut().remove(nexus);
        self.removable_medium.borrow_mut().allow(Some(nexus));
        self.copies.borrow_mut().retain(|(asker, _), _| asker != nexus);
        self.reservations.borrow_mut().drop_legacy(Some(nexus));
    }

    /// Resets the unit; all nexuses but `nexus` get RESET OCCURRED.
    pub fn reset(&self, nexus: Option<&Nexus>) {
        self.reservations.borrow_mut().drop_legacy(None);
        self.removable_medium.borrow_mut().allow(None);
        self.set_mode(self.mode.get().at_first());
        self.raise_attention_for_others(nexus, AdditionalSense::RESET_OCCURRED);
    }

    fn set_mode(&self, mode: ModeSettings) {
        let before = self.mode.replace(mode);
        if let Some(watch) = self.watch.as_ref().filter(|_| before.thresholds != mode.thresholds) {
            watch.rearm();
        }
    }

    /// The device was resized: establishes CAPACITY DATA HAS CHANGED.
    pub fn capacity_changed(&self) {
        self.raise_attention_for_others(None, AdditionalSense::CAPACITY_CHANGED);
    }

    fn raise_attention_for_others(&self, nexus: Option<&Nexus>, what: AdditionalSense) {
        let others: Vec<Nexus> =
            self.attentions.borrow().keys().filter(|other| Some(*other) != nexus).cloned().collect();
        others.iter().for_each(|other| self.raise_attention(other, what));
    }

    /// Establishes a unit attention for `nexus`.
    pub fn raise_attention(&self, nexus: &Nexus, what: AdditionalSense) {
        let mut attentions = self.attentions.borrow_mut();
        // A nexus that begins later gets RESET OCCURRED anyway.
        let Some(queue) = attentions.get_mut(nexus) else { return };
        if queue.contains(&what) {
            return;
        }
        if queue.len() == ATTENTIONS_MAX {
            *queue = [AdditionalSense::RESET_OCCURRED].into();
        }
        queue.push_back(what);
    }

    fn take_attention(&self, nexus: &Nexus) -> Option<Sense> {
        let what = self.attentions.borrow_mut().get_mut(nexus)?.pop_front()?;
        Some(Sense::new(SenseKey::UnitAttention, what))
    }

    /// Withholds the unit from all initiators that have sessions with it, or had one that broke. Returns the names of
    /// those from which it was not withheld yet. Afterwards no command is being executed.
    pub async fn withhold(&self) -> Vec<String> {
        let initiators = self.withholding.borrow_mut().withhold();
        while self.executing.get() > 0 {
            self.idle.notified().await;
        }
        initiators
    }

    /// Keeps all initiators out for a while, also those that log in now: the contents are about to change.
    pub fn keep_all_out(&self, are_kept_out: bool) {
        self.are_all_kept_out.set(are_kept_out);
    }

    /// Withholds the unit from nexuses that an earlier process withheld it from, and that have not logged out since.
    pub fn withhold_from(&self, nexuses: impl IntoIterator<Item = Nexus>) {
        self.withholding.borrow_mut().withhold_from(nexuses);
    }

    /// Ends the withholding from initiators that [`LogicalUnit::withhold`] has returned: the contents have not changed.
    pub fn take_back_withholding(&self, initiators: &[String]) {
        self.withholding.borrow_mut().take_back(initiators);
    }

    /// Nexuses that must log out before their initiators may use the unit again.
    pub fn withheld_nexuses(&self) -> Vec<Nexus> {
        self.withholding.borrow().nexuses().cloned().collect()
    }

    /// Nexuses that may have cached something of the unit: those with sessions, those whose sessions broke, and those that
    /// must log out.
    pub fn known_nexuses(&self) -> Vec<Nexus> {
        self.withholding.borrow().known_nexuses().into_iter().collect()
    }

    /// True if the nexus must log out before its initiator may use the unit again.
    pub fn must_log_out(&self, nexus: &Nexus) -> bool {
        self.withholding.borrow().nexuses().any(|withheld| withheld == nexus)
    }

    /// Notifies `logouts` of each nexus that has logged out from which the unit was withheld.
    pub fn notify_logouts(&self, logouts: &Rc<Notify>) {
        self.withholding.borrow_mut().set_logouts(logouts);
    }

    /// Names of the initiators that have sessions with the unit, sorted.
    pub fn initiators(&self) -> Vec<String> {
        self.withholding.borrow().logged_in()
    }

    /// Names of the initiators from which the unit is withheld.
    pub fn withheld_from(&self) -> Vec<String> {
        self.withholding.borrow().initiators()
    }

    /// Readmits an initiator, whatever it has cached. False if the unit is not withheld from it.
    pub fn readmit(&self, initiator: &str) -> bool {
        self.withholding.borrow_mut().readmit(initiator)
    }

    /// The device has other contents, and perhaps another size: establishes unit attentions.
    pub fn contents_changed(&self) {
        self.raise_attention_for_others(None, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
        self.capacity_changed();
    }

    fn check_admitted(&self, nexus: &Nexus) -> UnitResult<()> {
        if self.withholding.borrow().is_withheld(nexus) {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::MANUAL_INTERVENTION_REQUIRED).into());
        }
        if self.are_all_kept_out.get() {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::BECOMING_READY).into());
        }
        Ok(())
    }

    pub async fn execute(&self, request: ScsiRequest<'_>) -> CommandStatus {
        let _executing = ExecutionGuard::begin(self);
        match self.dispatch(request).await {
            Ok(data) => CommandStatus::Good(data),
            Err(ended) => ended,
        }
    }

    async fn dispatch(&self, request: ScsiRequest<'_>) -> UnitResult<ResponseData> {
        let known = commands::find(request.cdb)?;
        self.check_thresholds(request.nexus);
        let asks_who_is_there = matches!(known.code, code::INQUIRY | code::REPORT_LUNS | code::REQUEST_SENSE);
        if !asks_who_is_there {
            self.check_admitted(request.nexus)?;
        }
        if !asks_who_is_there && let Some(attention) = self.take_attention(request.nexus) {
            return Err(attention.into());
        }
        self.reservations.borrow().check(request.nexus, known.what)?;
        if is_medium_write(known) {
            // The write right is checked before the command's other errors.
            self.check_may_write(&request)?;
        }
        self.check_loaded(known)?;
        if request.is_mismatched {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into());
        }
        match known.code {
            code::PERSISTENT_RESERVE_IN => self.reserve_in(&request),
            code::PERSISTENT_RESERVE_OUT => self.reserve_out(&request),
            code::RESERVE_6 => Ok(self
                .reservations
                .borrow_mut()
                .reserve_legacy(request.nexus)
                .map(|()| ResponseData::None)?),
            code::RELEASE_6 => Ok(self
                .reservations
                .borrow_mut()
                .release_legacy(request.nexus)
                .map(|()| ResponseData::None)?),
            _ if is_medium_command(known) => self.execute_medium(known, request).await,
            _ => self.execute_non_medium(known, request),
        }
    }
}

/// A command that is being executed, or a copy that writes to a unit.
struct ExecutionGuard<'a>(&'a LogicalUnit);

impl<'a> ExecutionGuard<'a> {
    fn begin(unit: &'a LogicalUnit) -> Self {
        unit.executing.set(unit.executing.get() + 1);
        Self(unit)
    }
}

impl Drop for ExecutionGuard<'_> {
    fn drop(&mut self) {
        self.0.executing.set(self.0.executing.get() - 1);
        if self.0.executing.get() == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

/// True for commands that access blocks or the medium as a whole.
fn is_medium_command(known: &SupportedCommand) -> bool {
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

fn is_medium_write(known: &SupportedCommand) -> bool {
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

/// Parameter data, cut to the allocation length.
fn parameters(mut bytes: Vec<u8>, room: usize) -> ResponseData {
    bytes.truncate(room);
    ResponseData::Parameters(bytes)
}

/// One buffer, or none if there are no bytes.
pub(crate) fn buffers_of(bytes: &[u8]) -> Vec<Buffer> {
    if bytes.is_empty() { Vec::new() } else { vec![Buffer::copy_of(bytes)] }
}

/// The concatenated bytes of `buffers`.
fn bytes_of(buffers: &[Buffer]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = buffers.iter().map(|buffer| &buffer[..]).collect();
    pieces.concat()
}

/// The parameter list: the first `length` bytes of the data-out.
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
