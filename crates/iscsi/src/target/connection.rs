//! One connection: login, then commands until it ends.
//!
//! Invariants:
//!
//! 1. Commands are accepted in the order of CmdSN and executed concurrently; each is answered once, unless it
//!    was aborted: then its answer is suppressed.
//! 2. A protocol violation is rejected or ends the connection; it affects no other session.
//! 3. When the connection ends, commands that were started are completed, and RESERVE(6) reservations of its
//!    session are released.

use super::{
    SessionFailure, Targets,
    login::{LoggedIn, log_in},
    pending_command::{LentBuffer, PendingCommand, TransferStep},
    send_queue::{SendQueue, StatSn},
    text_request::PartialText,
};
use crate::{
    scsi::{
        commands::code,
        inquiry,
        reservations::Nexus,
        sense::{AdditionalSense, Sense, SenseKey},
        unit::{AccessibleUnit, CommandStatus, ResponseData, ScsiRequest, TransferLength},
        withholding::SessionEnd,
    },
    session::{login::NewSession, negotiation::SessionParameters},
    wire::{
        header::{
            AsyncMessage, DataOut, FINAL, IMMEDIATE, Logout, LogoutResponse, NO_TAG, NopIn, NopOut,
            PduHeader, ReadyToTransfer, Reject, ScsiCommand, TaskManagement, opcode,
        },
        pdu::{Digests, HEADER_BYTES, Pdu, PduError, PduHead},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
    rc::Rc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, split},
    sync::Notify,
};
use world::{Buffer, Moment, Stream, WallTime, World, network::receiver::Receiver, with_deadline};

/// Most bytes of solicited data outstanding on a connection.
const HELD_BYTES_MAX: usize = 64 << 20;
/// An initiator silent for this long gets a NOP-In; after as long again the connection is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Time limit for sending the last responses.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Parameter3 of a logout request: seconds within which the initiator should log out.
const LOG_OUT_S: u16 = 3;
/// The second of two reasons of a logout that end a session of one connection (RFC 7143, 11.14.1).
const CLOSE_CONNECTION: u8 = 1;
pub(super) const LOGIN_MAX: Duration = Duration::from_secs(15);
/// Reject reasons (RFC 7143, 11.17.1).
pub(super) const PROTOCOL_ERROR: u8 = 0x04;
const NOT_SUPPORTED: u8 = 0x05;
const DATA_DIGEST_ERROR: u8 = 0x02;

/// A connection before its login.
pub(super) struct ArrivedConnection {
    pub stream: Stream,
    /// Bytes of the login that were read already.
    pub received: Vec<u8>,
    /// Address that SendTargets answers.
    pub portal: String,
}

/// Serves one connection, of the initiator at the address `peer`, to its end.
pub(super) async fn run(
    world: &World,
    ArrivedConnection { stream, received, portal }: ArrivedConnection,
    peer: &str,
    targets: &Targets,
    tell: impl FnOnce(&str, Option<&str>),
) -> Result<(), SessionFailure> {
    let (reader, mut writer) = split(stream);
    let mut reader = Receiver::behind(&received, reader);
    let logging_in = log_in(world, &mut reader, &mut writer, targets, peer);
    let logged_in = with_deadline(world.sleep(LOGIN_MAX), logging_in).await;
    let logged_in = logged_in.unwrap_or(Err(SessionFailure::LoginTimeout))?;
    let Some(LoggedIn { session, send_queue, held }) = logged_in else {
        return Ok(());
    };
    // It was in no list when the sessions followed.
    if targets.are_replaced() {
        return Err(SessionFailure::RightsLost);
    }
    let NewSession { initiator, isid, target, parameters } = session;
    tell(&initiator, target.as_ref().map(|target| target.name.as_str()));
    let hex: String = isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let nexus = Nexus(format!("{initiator},i,0x{hex}"));
    let name = format!("{} {}", nexus.0, target.as_ref().map_or("", |target| &target.name));
    let ends = targets.sessions.begin(&name);
    // Units of a target lie in one pool.
    let first = target.as_ref().and_then(|target| target.units.values().next());
    send_queue.set_timer(first.and_then(|unit| unit.replies()));
    let connection = Rc::new(Connection {
        world: world.clone(),
        targets: targets.clone(),
        portal,
        target_name: target.as_ref().map_or_else(String::new, |target| target.name.clone()),
        units: RefCell::new(Rc::new(match &target {
            Some(target) => targets.units_of(target, &initiator),
            None => BTreeMap::new(),
        })),
        hold: held.session(),
        initiator: initiator.clone(),
        peer: peer.to_owned(),
        since: world.wall(),
        reach: targets.units_in_reach(&initiator, target.as_ref()),
        has_target: target.is_some(),
        nexus,
        parameters,
        send_queue,
        pending: RefCell::default(),
        executing: RefCell::default(),
        ttt_next: Cell::new(1),
        heard_at: Cell::new(world.now()),
        is_silent: Cell::new(false),
        has_logged_out: Cell::new(false),
        is_asked_to_log_out: Cell::new(false),
        has_lost_rights: Cell::new(false),
        is_ended_by_operator: Cell::new(false),
        has_moved: Cell::new(false),
        taken_bytes: Cell::new(0),
        waiting: RefCell::default(),
        idle: Notify::new(),
        partial_text: RefCell::default(),
    });
    targets.sessions.connected(&name, &ends, &connection);
    connection.units().values().for_each(|reached| reached.unit.begin_session(&connection.nexus));
    let cut = Rc::new(Notify::new());
    let writing = {
        let (connection, cut) = (Rc::clone(&connection), Rc::clone(&cut));
        world.spawn("iscsi answers", async move {
            let writing = connection.send_queue.write_all(&mut writer);
            with_deadline(cut.notified(), writing).await.unwrap_or(Ok(()))
        })
    };
    let has_to_end = async {
        with_deadline(ends.notified(), connection.until_silent()).await;
    };
    let ended = with_deadline(has_to_end, Rc::clone(&connection).read_all(&mut reader)).await;
    connection.until_idle().await;
    connection.send_queue.close();
    // A silent initiator does not read responses either.
    if connection.is_silent.get() {
        cut.notify_one();
    }
    let written = match with_deadline(world.sleep(FAREWELL_MAX), writing).await {
        Some(written) => written.map_err(SessionFailure::Send),
        None => {
            cut.notify_one();
            Err(SessionFailure::UnreadResponses)
        }
    };
    let is_done = connection.has_logged_out.get() && !connection.is_asked_to_log_out.get();
    let end = if is_done { SessionEnd::LoggedOut } else { SessionEnd::Broken };
    connection.units().values().for_each(|reached| reached.unit.end_session(&connection.nexus, end));
    targets.sessions.end(&name, &ends);
    // A silent initiator had its time to come back; one that lost its rights, or whose session was ended, has no claim.
    let has_ended = connection.has_logged_out.get() || connection.is_silent.get();
    if !has_ended && !connection.has_lost_rights.get() && !connection.is_ended_by_operator.get() {
        held.keep();
    }
    match ended {
        None if connection.is_silent.get() => Err(SessionFailure::NoResponse),
        None if connection.has_moved.get() => Err(SessionFailure::Moved),
        None if connection.has_lost_rights.get() => Err(SessionFailure::RightsLost),
        None if connection.is_ended_by_operator.get() => Err(SessionFailure::EndedByOperator),
        None => Err(SessionFailure::Reinstatement),
        Some(Ok(())) => written,
        Some(Err(why)) => Err(why),
    }
}

pub(super) struct ExecutingCommand {
    pub(super) unit: u64,
    pub(super) is_aborted: Cell<bool>,
}

pub(super) struct Connection {
    world: World,
    pub(super) targets: Targets,
    pub(super) portal: String,
    pub(super) target_name: String,
    pub(super) initiator: String,
    /// Its address.
    pub(super) peer: String,
    /// Time of its login.
    pub(super) since: WallTime,
    /// By logical unit number. Replaced as a whole when the initiator gains units.
    pub(super) units: RefCell<Rc<BTreeMap<u64, AccessibleUnit>>>,
    /// Number of its hold on them.
    pub(super) hold: u64,
    /// Units of all targets that this session may use, for EXTENDED COPY.
    pub(super) reach: Vec<AccessibleUnit>,
    has_target: bool,
    pub(super) nexus: Nexus,
    pub(super) parameters: SessionParameters,
    pub(super) send_queue: SendQueue,
    /// By ITT.
    pub(super) pending: RefCell<BTreeMap<u32, PendingCommand>>,
    /// By ITT.
    pub(super) executing: RefCell<BTreeMap<u32, Rc<ExecutingCommand>>>,
    ttt_next: Cell<u32>,
    heard_at: Cell<Moment>,
    /// The initiator did not answer a NOP-In.
    is_silent: Cell<bool>,
    /// The initiator closed the session by command.
    has_logged_out: Cell<bool>,
    /// It was asked to: open-iscsi does so, logs in again, and sends again what was not answered.
    is_asked_to_log_out: Cell<bool>,
    /// Units or rights were taken from the initiator.
    pub(super) has_lost_rights: Cell<bool>,
    /// A person ended the session.
    pub(super) is_ended_by_operator: Cell<bool>,
    /// A unit is elsewhere by now.
    pub(super) has_moved: Cell<bool>,
    /// Bytes reserved by commands whose data were requested.
    taken_bytes: Cell<usize>,
    /// ITTs of commands that wait for room before their data are requested.
    waiting: RefCell<VecDeque<u32>>,
    idle: Notify,
    pub(super) partial_text: RefCell<Option<PartialText>>,
}

/// The data segment of a PDU while it is received.
enum Segment {
    /// Of a new command: in its buffer.
    Immediate(Box<PendingCommand>, LentBuffer),
    /// Of a Data-Out: in its command's buffer.
    DataOut(LentBuffer),
    Other(Vec<u8>),
}

impl Segment {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Immediate(_, lent) | Self::DataOut(lent) => lent.bytes(),
            Self::Other(data) => data,
        }
    }
}

impl Connection {
    async fn until_idle(&self) {
        while !self.executing.borrow().is_empty() {
            self.idle.notified().await;
        }
    }

    /// Sends NOP-Ins to a silent initiator; completes when one stays unanswered.
    async fn until_silent(&self) {
        loop {
            self.world.sleep(SILENCE_MAX).await;
            let heard_at = self.heard_at.get();
            if self.world.now().since(heard_at) < SILENCE_MAX {
                continue;
            }
            let tag = self.next_ttt();
            let ping = NopIn { flags: FINAL, itt: NO_TAG.into(), ttt: tag.into(), ..NopIn::empty() };
            self.send_queue.send(&ping, StatSn::Peek, &[]);
            self.world.sleep(SILENCE_MAX).await;
            if self.heard_at.get() == heard_at {
                return self.is_silent.set(true);
            }
        }
    }

    pub(super) fn units(&self) -> Rc<BTreeMap<u64, AccessibleUnit>> {
        Rc::clone(&self.units.borrow())
    }

    pub(super) fn is_discovery(&self) -> bool {
        !self.has_target
    }

    /// Requests a logout (RFC 7143, 11.9.1).
    pub(super) fn ask_to_log_out(&self) {
        const LOG_OUT: u8 = 1;
        self.is_asked_to_log_out.set(true);
        let message = AsyncMessage {
            flags: FINAL,
            no_itt: NO_TAG.into(),
            async_event: LOG_OUT,
            parameters: [0.into(), 0.into(), LOG_OUT_S.into()],
            ..AsyncMessage::empty()
        };
        self.send_queue.send(&message, StatSn::Advance, &[]);
    }

    pub(super) fn next_ttt(&self) -> u32 {
        let tag = self.ttt_next.get();
        self.ttt_next.set(if tag + 1 == NO_TAG { 1 } else { tag + 1 });
        tag
    }

    async fn read_all(self: Rc<Self>, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), SessionFailure> {
        let digests = Digests { header: self.parameters.header_digest, data: self.parameters.data_digest };
        let data_max = self.parameters.receive_bytes_max as usize;
        loop {
            // Backpressure: no new commands while responses pile up.
            self.send_queue.until_room().await;
            let head = PduHead::read(reader, digests, data_max).await?;
            let Some(head) = head else { return Ok(()) };
            let mut segment = self.segment_of(&head);
            if !head.read_data(reader, digests, segment.bytes()).await? {
                // Error recovery level 0: the initiator starts a new session.
                self.reject(&head.header, DATA_DIGEST_ERROR);
                return Err(PduError::DataDigest(Box::new(head.with_data(Vec::new()))).into());
            }
            self.heard_at.set(self.world.now());
            if self.take(head, segment)? == ControlFlow::Break(()) {
                return Ok(());
            }
        }
    }

    /// The memory for a data segment: the buffer of the command it belongs to, if it may have these data. Changes nothing
    /// but that the buffer is lent.
    fn segment_of(&self, head: &PduHead) -> Segment {
        let bytes = head.data_bytes;
        let segment = match head.opcode() {
            opcode::SCSI_COMMAND if self.has_target => {
                let command = ScsiCommand::of(&head.header);
                let takes = match self.units().get(&unit_of(&command.lun)) {
                    Some(reached) => reached.unit.transfer_length(&command.cdb),
                    None => TransferLength::UpTo(0),
                };
                PendingCommand::new(command, bytes, takes, &self.parameters).ok().map(|mut pending| {
                    let lent = pending.lend(bytes);
                    Segment::Immediate(Box::new(pending), lent)
                })
            }
            opcode::DATA_OUT if self.has_target => {
                let header = DataOut::of(&head.header);
                let mut all = self.pending.borrow_mut();
                let pending = all.get_mut(&header.itt.get());
                let pending = pending.filter(|pending| pending.check(&header, bytes).is_ok());
                pending.map(|pending| Segment::DataOut(pending.lend(bytes)))
            }
            _ => None,
        };
        segment.unwrap_or_else(|| Segment::Other(vec![0; bytes]))
    }

    /// Handles one PDU.
    fn take(self: &Rc<Self>, head: PduHead, segment: Segment) -> Result<ControlFlow<()>, SessionFailure> {
        let is_immediate = head.header[0] & IMMEDIATE != 0;
        let is_numbered = !matches!(head.opcode(), opcode::DATA_OUT | opcode::SNACK);
        let number = u32::from_be_bytes(head.header[24..28].try_into().expect("four bytes"));
        if is_numbered && !is_immediate {
            if number != self.send_queue.exp_cmd_sn() || !self.send_queue.is_in_window(number) {
                // Outside the command window, or out of order on a session's only connection: ignored (RFC
                // 7143, 4.2.2.1).
                return Ok(ControlFlow::Continue(()));
            }
            self.send_queue.command_came();
        }
        let counts = is_numbered && !is_immediate;
        let data = match segment {
            Segment::Immediate(pending, lent) => {
                self.begin(&head.header, *pending, lent, counts);
                return Ok(ControlFlow::Continue(()));
            }
            Segment::DataOut(lent) => {
                self.more_data(&head.header, Some(lent));
                return Ok(ControlFlow::Continue(()));
            }
            Segment::Other(data) => data,
        };
        let pdu = head.with_data(data);
        match pdu.opcode() {
            // Its immediate data, or a missing F bit, violate the negotiated parameters.
            opcode::SCSI_COMMAND if self.has_target => self.reject(&pdu.header, PROTOCOL_ERROR),
            opcode::DATA_OUT if self.has_target => self.more_data(&pdu.header, None),
            opcode::TASK_MANAGEMENT if self.has_target => {
                if self.manage(&TaskManagement::of(&pdu.header)) == ControlFlow::Break(()) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            opcode::NOP_OUT => self.echo(&pdu),
            opcode::TEXT => self.answer_text(&pdu),
            opcode::LOGOUT => {
                let request = Logout::of(&pdu.header);
                self.has_logged_out.set(request.flags & !FINAL <= CLOSE_CONNECTION);
                let response = LogoutResponse { flags: FINAL, itt: request.itt, ..LogoutResponse::empty() };
                self.send_queue.send(&response, StatSn::Advance, &[]);
                return Ok(ControlFlow::Break(()));
            }
            opcode::LOGIN => return Err(SessionFailure::SecondLogin),
            _ => self.reject(&pdu.header, NOT_SUPPORTED),
        }
        if counts {
            self.send_queue.command_done();
        }
        Ok(ControlFlow::Continue(()))
    }

    pub(super) fn reject(&self, header: &[u8; HEADER_BYTES], reason: u8) {
        let reject = Reject { flags: FINAL, reason, no_itt: NO_TAG.into(), ..Reject::empty() };
        self.send_queue.send(&reject, StatSn::Advance, header);
    }

    fn echo(&self, pdu: &Pdu) {
        let request = NopOut::of(&pdu.header);
        // The answer to a NOP-In of ours.
        if request.itt.get() == NO_TAG {
            return;
        }
        let room = self.parameters.send_bytes_max as usize;
        let data = &pdu.data[..pdu.data.len().min(room)];
        let response =
            NopIn { flags: FINAL, lun: request.lun, itt: request.itt, ttt: NO_TAG.into(), ..NopIn::empty() };
        self.send_queue.send(&response, StatSn::Advance, data);
    }

    fn begin(
        self: &Rc<Self>,
        header: &[u8; HEADER_BYTES],
        mut pending: PendingCommand,
        lent: LentBuffer,
        counts: bool,
    ) {
        let itt = pending.command.itt.get();
        let is_known = self.pending.borrow().contains_key(&itt) || self.executing.borrow().contains_key(&itt);
        if is_known {
            self.reject(header, PROTOCOL_ERROR);
            if counts {
                self.send_queue.command_done();
            }
            return;
        }
        pending.give_back(lent);
        self.go_on(pending, counts);
    }

    /// Executes a command, requests its data, or waits for them.
    fn go_on(self: &Rc<Self>, mut pending: PendingCommand, counts: bool) {
        let itt = pending.command.itt.get();
        match pending.next(&self.parameters) {
            TransferStep::Execute => return self.execute(pending, counts),
            TransferStep::Wait => {}
            TransferStep::RequestData { .. } if !self.reserve_room(&mut pending) => {
                self.waiting.borrow_mut().push_back(itt);
            }
            TransferStep::RequestData { offset, bytes } => {
                let tag = self.next_ttt();
                pending.data_requested(tag, bytes);
                let asked = ReadyToTransfer {
                    flags: FINAL,
                    lun: pending.command.lun,
                    itt: itt.into(),
                    ttt: tag.into(),
                    buffer_offset: offset.into(),
                    desired_length: bytes.into(),
                    ..ReadyToTransfer::empty()
                };
                self.send_queue.send(&asked, StatSn::Peek, &[]);
            }
        }
        // A pending command does not occupy the window: its memory is bounded by its expected length.
        self.pending.borrow_mut().insert(itt, pending);
        if counts {
            self.send_queue.command_done();
        }
    }

    /// Reserves room for the solicited data of a command. A command larger than all the room gets it when no
    /// other holds any.
    fn reserve_room(&self, pending: &mut PendingCommand) -> bool {
        let (taken, bytes) = (self.taken_bytes.get(), pending.bytes_max());
        if !pending.has_reservation && (taken == 0 || taken + bytes <= HELD_BYTES_MAX) {
            self.taken_bytes.set(taken + bytes);
            pending.has_reservation = true;
        }
        pending.has_reservation
    }

    /// Releases the room of a command and lets waiting commands request their data.
    pub(super) fn release_room(self: &Rc<Self>, held: usize) {
        self.taken_bytes.set(self.taken_bytes.get().checked_sub(held).expect("it was taken"));
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for itt in waiting {
            let pending = self.pending.borrow_mut().remove(&itt);
            if let Some(pending) = pending {
                self.go_on(pending, false);
            }
        }
    }

    /// A Data-Out has arrived, in its command's buffer unless it is misplaced.
    fn more_data(self: &Rc<Self>, header: &[u8; HEADER_BYTES], lent: Option<LentBuffer>) {
        let data_out = DataOut::of(header);
        let Some(mut pending) = self.pending.borrow_mut().remove(&data_out.itt.get()) else {
            // The command was aborted or rejected.
            return;
        };
        if let Some(lent) = lent {
            pending.receive(&data_out, lent);
            return self.go_on(pending, false);
        }
        self.reject(header, PROTOCOL_ERROR);
        let sense = Sense::new(SenseKey::AbortedCommand, AdditionalSense::DATA_PHASE_ERROR);
        self.answer(&pending.command, pending.takes, CommandStatus::CheckCondition(sense));
        if pending.has_reservation {
            self.release_room(pending.bytes_max());
        }
    }

    fn execute(self: &Rc<Self>, pending: PendingCommand, counts: bool) {
        let itt = pending.command.itt.get();
        let unit = unit_of(&pending.command.lun);
        let held = if pending.has_reservation { pending.bytes_max() } else { 0 };
        let executing = Rc::new(ExecutingCommand { unit, is_aborted: Cell::new(false) });
        self.executing.borrow_mut().insert(itt, Rc::clone(&executing));
        let connection = Rc::clone(self);
        self.world.spawn("iscsi command", async move {
            let (command, takes) = (pending.command.clone(), pending.takes);
            let is_mismatched = pending.is_mismatched;
            let ended = connection.ask(unit, &command, pending.into_data(), is_mismatched).await;
            if counts {
                connection.send_queue.command_done();
            }
            if !executing.is_aborted.get() {
                connection.answer(&command, takes, ended);
            }
            let mut all = connection.executing.borrow_mut();
            if all.get(&itt).is_some_and(|known| Rc::ptr_eq(known, &executing)) {
                all.remove(&itt);
            }
            drop(all);
            if held > 0 {
                connection.release_room(held);
            }
            connection.idle.notify_one();
        });
    }

    async fn ask(
        &self,
        number: u64,
        command: &ScsiCommand,
        data: Vec<Buffer>,
        is_mismatched: bool,
    ) -> CommandStatus {
        let units = self.units();
        let numbers: Vec<u64> = units.keys().copied().collect();
        let cdb = &command.cdb[..];
        let may_write = units.get(&number).is_some_and(|reached| reached.may_write);
        let asked = ScsiRequest {
            nexus: &self.nexus,
            target: &self.target_name,
            cdb,
            data,
            units: &numbers,
            reach: &self.reach,
            may_write,
            is_mismatched,
        };
        match (units.get(&number), cdb[0]) {
            (Some(reached), code::PERSISTENT_RESERVE_OUT) if cdb[1] & 0x1f == code::PREEMPT_AND_ABORT => {
                let before = reached.unit.registered();
                let ended = reached.unit.execute(asked).await;
                let after = reached.unit.registered();
                self.abort_preempted(&reached.unit, &before.difference(&after).cloned().collect::<Vec<_>>());
                ended
            }
            (Some(reached), _) => reached.unit.execute(asked).await,
            // Initiators send REPORT LUNS to LUN 0 even if it does not exist.
            (None, code::REPORT_LUNS) => match units.values().next() {
                Some(reached) => reached.unit.execute(asked).await,
                None => CommandStatus::Good(ResponseData::Parameters(vec![0; 8])),
            },
            (None, code::INQUIRY) => {
                let room = usize::from(u16::from_be_bytes([cdb[3], cdb[4]]));
                let mut data = inquiry::no_unit();
                data.truncate(room);
                CommandStatus::Good(ResponseData::Parameters(data))
            }
            (None, code::REQUEST_SENSE) => {
                let sense = Sense::illegal(AdditionalSense::UNIT_NOT_SUPPORTED).fixed();
                CommandStatus::Good(ResponseData::Parameters(
                    sense[..sense.len().min(cdb[4].into())].to_vec(),
                ))
            }
            _ => CommandStatus::CheckCondition(Sense::illegal(AdditionalSense::UNIT_NOT_SUPPORTED)),
        }
    }
}

/// Logical unit number in peripheral or flat space addressing (SAM-5, 4.7).
pub(super) fn unit_of(lun: &[u8; 8]) -> u64 {
    match lun[0] >> 6 {
        0 => lun[1].into(),
        1 => u64::from(u16::from_be_bytes([lun[0] & 0x3f, lun[1]])),
        _ => u64::MAX,
    }
}
