//! Headers of the protocol data units (RFC 7143, 11.3 to 11.19): one structure each, as it lies on the wire.

use super::frame::HEADER_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian as be};

/// What a unit is.
#[allow(missing_docs, reason = "the names are those of the standard")]
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const READY_TO_TRANSFER: u8 = 0x31;
    pub const ASYNC_MESSAGE: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// In the first byte: to be done at once, out of order.
pub const IMMEDIATE: u8 = 0x40;
/// In the second byte: the last one of its kind.
pub const FINAL: u8 = 0x80;
/// A task or transfer tag that names none.
pub const NO_TAG: u32 = u32::MAX;

/// What every answer says: its number, the command that is to come next, and the highest that may.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are those of the standard")]
pub struct AnswerNumbers {
    pub status: be::U32,
    pub expected_command: be::U32,
    pub command_max: be::U32,
}

/// Where they lie in each answer.
pub const ANSWER_NUMBERS_AT: usize = 24;

/// A header as it lies on the wire.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Clone {
    /// What it is.
    const OPCODE: u8;

    /// From a frame that is one.
    fn of(header: &[u8; HEADER_BYTES]) -> Self {
        assert_eq!(header[0] & 0x3f, Self::OPCODE, "it is one of these");
        Self::read_from_bytes(header).expect("each header has as many bytes")
    }

    /// For a frame.
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes: [u8; HEADER_BYTES] =
            self.as_bytes().try_into().expect("each header has as many bytes");
        bytes[0] = (bytes[0] & IMMEDIATE) | Self::OPCODE;
        bytes
    }

    /// One without anything.
    fn empty() -> Self {
        Self::new_zeroed()
    }
}

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            #[allow(missing_docs, reason = "the names are those of the standard")]
            pub struct $name {
                pub first: u8,
                pub flags: u8,
                $($(#[$field_doc])* pub $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == HEADER_BYTES);

            impl Header for $name {
                const OPCODE: u8 = opcode::$opcode;
            }
        )*

        #[cfg(test)]
        const ALL: &[(&str, u8)] = &[$((stringify!($name), opcode::$opcode)),*];
    };
}

headers! {
    /// SCSI Command. Flags: F, R, W, and the attribute of the task.
    ScsiCommand = SCSI_COMMAND {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        expected_bytes: be::U32,
        command_number: be::U32,
        expected_status: be::U32,
        cdb: [u8; 16],
    }
    /// SCSI Response. Flags: residual overflow and underflow.
    ScsiResponse = SCSI_RESPONSE {
        response: u8,
        status: u8,
        lengths: [u8; 4],
        reserved: [u8; 8],
        task: be::U32,
        snack: be::U32,
        numbers: AnswerNumbers,
        expected_data: be::U32,
        bidirectional_residual: be::U32,
        residual: be::U32,
    }
    /// Task Management Function Request. Flags: the function.
    TaskManagement = TASK_MANAGEMENT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        referenced_task: be::U32,
        command_number: be::U32,
        expected_status: be::U32,
        referenced_command: be::U32,
        expected_data: be::U32,
        also_reserved: [u8; 8],
    }
    /// Task Management Function Response.
    TaskManagementResponse = TASK_MANAGEMENT_RESPONSE {
        response: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        task: be::U32,
        more_reserved: [u8; 4],
        numbers: AnswerNumbers,
        still_reserved: [u8; 12],
    }
    /// SCSI Data-Out. Flags: F.
    DataOut = DATA_OUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        also_reserved: [u8; 4],
        expected_status: be::U32,
        more_reserved: [u8; 4],
        data_number: be::U32,
        offset: be::U32,
        still_reserved: [u8; 4],
    }
    /// SCSI Data-In. Flags: F, A, overflow, underflow, S.
    DataIn = DATA_IN {
        reserved: u8,
        status: u8,
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        numbers: AnswerNumbers,
        data_number: be::U32,
        offset: be::U32,
        residual: be::U32,
    }
    /// Ready To Transfer.
    ReadyToTransfer = READY_TO_TRANSFER {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        numbers: AnswerNumbers,
        number: be::U32,
        offset: be::U32,
        desired_bytes: be::U32,
    }
    /// Asynchronous Message.
    AsyncMessage = ASYNC_MESSAGE {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        no_task: be::U32,
        also_reserved: [u8; 4],
        numbers: AnswerNumbers,
        event: u8,
        code: u8,
        parameters: [be::U16; 3],
        more_reserved: [u8; 4],
    }
    /// Text Request. Flags: F, C.
    Text = TEXT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        command_number: be::U32,
        expected_status: be::U32,
        also_reserved: [u8; 16],
    }
    /// Text Response. Flags: F, C.
    TextResponse = TEXT_RESPONSE {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        numbers: AnswerNumbers,
        also_reserved: [u8; 12],
    }
    /// Login Request. Flags: T, C, the present stage and the next one.
    Login = LOGIN {
        version_max: u8,
        version_min: u8,
        lengths: [u8; 4],
        initiator_session: [u8; 6],
        target_session: be::U16,
        task: be::U32,
        connection: be::U16,
        reserved: [u8; 2],
        command_number: be::U32,
        expected_status: be::U32,
        also_reserved: [u8; 16],
    }
    /// Login Response. Flags: T, C, the present stage and the next one.
    LoginResponse = LOGIN_RESPONSE {
        version_max: u8,
        version_active: u8,
        lengths: [u8; 4],
        initiator_session: [u8; 6],
        target_session: be::U16,
        task: be::U32,
        reserved: [u8; 4],
        numbers: AnswerNumbers,
        status_class: u8,
        status_detail: u8,
        also_reserved: [u8; 10],
    }
    /// Logout Request. Flags: the reason.
    Logout = LOGOUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        task: be::U32,
        connection: be::U16,
        more_reserved: [u8; 2],
        command_number: be::U32,
        expected_status: be::U32,
        still_reserved: [u8; 16],
    }
    /// Logout Response.
    LogoutResponse = LOGOUT_RESPONSE {
        response: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        task: be::U32,
        more_reserved: [u8; 4],
        numbers: AnswerNumbers,
        still_reserved: [u8; 4],
        time_to_wait_s: be::U16,
        time_to_retain_s: be::U16,
        last_reserved: [u8; 4],
    }
    /// Reject; its data are the header that is rejected.
    Reject = REJECT {
        reason: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        no_task: be::U32,
        more_reserved: [u8; 4],
        numbers: AnswerNumbers,
        data_number: be::U32,
        still_reserved: [u8; 8],
    }
    /// NOP-Out.
    NopOut = NOP_OUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        command_number: be::U32,
        expected_status: be::U32,
        also_reserved: [u8; 16],
    }
    /// NOP-In.
    NopIn = NOP_IN {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        task: be::U32,
        transfer: be::U32,
        numbers: AnswerNumbers,
        also_reserved: [u8; 12],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_opcode_of_its_own() {
        let mut opcodes: Vec<u8> = ALL.iter().map(|(_, opcode)| *opcode).collect();
        opcodes.sort_unstable();
        opcodes.dedup();
        assert_eq!(opcodes.len(), ALL.len());
    }

    #[test]
    fn a_command_lies_as_the_standard_shows_it() {
        // RFC 3720, appendix B.4: an iSCSI SCSI Read (10) Command PDU.
        let header: [u8; HEADER_BYTES] = [
            0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
            0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        let command = ScsiCommand::of(&header);
        assert_eq!((command.task.get(), command.expected_bytes.get()), (0x1400_0000, 0x400));
        assert_eq!((command.command_number.get(), command.expected_status.get()), (0x14, 0x18));
        assert_eq!(command.cdb[..10], [0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(command.to_bytes(), header);
        let urgent = ScsiCommand { first: IMMEDIATE, ..ScsiCommand::empty() };
        assert_eq!(urgent.to_bytes()[0], 0x41);
    }
}
