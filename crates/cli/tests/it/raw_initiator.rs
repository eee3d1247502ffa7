//! An initiator whose nexus is always the same, as open-iscsi's is: libiscsi takes another ISID for each connection.

use iscsi::wire::{
    header::{FINAL, IMMEDIATE, Login, Logout, PduHeader, ScsiCommand, opcode},
    pdu::{Digests, Pdu},
    text,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// A session. Its connection breaks when it is dropped.
pub struct RawInitiator {
    stream: TcpStream,
    cmd_sn: u32,
}

impl RawInitiator {
    /// Logs in to the target of a URI.
    pub fn begin(uri: &str, initiator: &str) -> Self {
        let (portal, target) = (uri.split('/').nth(2).unwrap(), uri.split('/').nth(3).unwrap());
        let mut session = Self { stream: TcpStream::connect(portal).unwrap(), cmd_sn: 1 };
        let header = Login {
            first: IMMEDIATE,
            flags: 0x87,
            isid: [0x80, 0, 0, 0, 0, 1],
            cmd_sn: 1.into(),
            ..Login::empty()
        };
        let keys = [("InitiatorName", initiator), ("TargetName", target), ("SessionType", "Normal")];
        session.send(&header, text::write(keys));
        let (answer, _) = session.answer(opcode::LOGIN_RESPONSE);
        assert_eq!(answer[36..38], [0, 0], "it is logged in");
        session
    }

    /// TEST UNIT READY. `None` if it is; else sense key, ASC and ASCQ.
    pub fn test_unit_ready(&mut self) -> Option<[u8; 3]> {
        let header = ScsiCommand {
            flags: FINAL,
            itt: self.cmd_sn.into(),
            cmd_sn: self.cmd_sn.into(),
            ..ScsiCommand::empty()
        };
        self.cmd_sn += 1;
        self.send(&header, Vec::new());
        let (answer, data) = self.answer(opcode::SCSI_RESPONSE);
        // Fixed format, behind its length.
        (answer[3] != 0).then(|| [data[4] & 15, data[14], data[15]])
    }

    /// Closes the session by command.
    pub fn log_out(mut self) {
        self.send(
            &Logout { first: IMMEDIATE, flags: FINAL, itt: 1000.into(), ..Logout::empty() },
            Vec::new(),
        );
        self.answer(opcode::LOGOUT_RESPONSE);
    }

    fn send<H: PduHeader>(&mut self, header: &H, data: Vec<u8>) {
        self.stream.write_all(&Pdu::new(header.to_bytes(), data).encode(Digests::default())).unwrap();
    }

    /// Header and data of the next PDU with that opcode.
    fn answer(&mut self, wanted: u8) -> ([u8; 48], Vec<u8>) {
        loop {
            let mut header = [0; 48];
            self.stream.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let mut data = vec![0_u8; length.next_multiple_of(4)];
            self.stream.read_exact(&mut data).unwrap();
            if header[0] & 0x3f == wanted {
                return (header, data);
            }
        }
    }
}
