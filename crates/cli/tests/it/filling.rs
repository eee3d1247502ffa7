//! A volume of a pool over iSCSI, as an initiator sees it while the pool fills.

use crate::{exports_iscsi::Serving, spindle::Bench};
use iscsi::{
    scsi::commands::code,
    wire::{
        header::{FINAL, IMMEDIATE, Login, PduHeader, ScsiCommand, opcode},
        pdu::{Digests, HEADER_BYTES, Pdu},
        text,
    },
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// GOOD, and CHECK CONDITION.
const GOOD: u8 = 0;
const CHECK: u8 = 2;

/// An initiator that hides nothing of what it hears.
struct Session {
    stream: TcpStream,
    next: u32,
}

impl Session {
    fn log_in(portal: &str, target: &str) -> Self {
        let header = Login {
            first: IMMEDIATE,
            flags: 0x87,
            isid: [0x80, 0, 0, 0, 0, 1],
            cmd_sn: 1.into(),
            ..Login::empty()
        };
        let pairs = [("InitiatorName", "iqn.x:a"), ("TargetName", target), ("SessionType", "Normal")];
        let mut session = Self { stream: TcpStream::connect(portal).unwrap(), next: 1 };
        session.send(&header, text::write(pairs));
        let (answer, _) = session.receive();
        assert_eq!((answer[0] & 0x3f, answer[36]), (opcode::LOGIN_RESPONSE, 0));
        session
    }

    fn send<H: PduHeader>(&mut self, header: &H, data: Vec<u8>) {
        let pdu = Pdu::new(header.to_bytes(), data);
        self.stream.write_all(&pdu.encode(Digests::default())).unwrap();
    }

    fn receive(&mut self) -> ([u8; HEADER_BYTES], Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(length);
        (header, data)
    }

    /// Status of a command, and its data or sense data.
    fn ask(&mut self, command: &[u8], data: Vec<u8>) -> (u8, Vec<u8>) {
        let mut cdb = [0; 16];
        cdb[..command.len()].copy_from_slice(command);
        // What is not written is read.
        let (writes, expected) = if data.is_empty() { (0x40, 255) } else { (0x20, data.len() as u32) };
        let header = ScsiCommand {
            flags: FINAL | writes,
            itt: self.next.into(),
            expected_transfer_length: expected.into(),
            cmd_sn: self.next.into(),
            cdb,
            ..ScsiCommand::empty()
        };
        self.next += 1;
        self.send(&header, data);
        let (answer, data) = self.receive();
        let is_sense = answer[0] & 0x3f == opcode::SCSI_RESPONSE && !data.is_empty();
        (answer[3], if is_sense { data[2..].to_vec() } else { data })
    }

    /// MiB available and used, according to the log page.
    fn room(&mut self) -> (u32, u32) {
        let (status, page) = self.ask(&[code::LOG_SENSE, 0, 0x4c, 0, 0, 0, 0, 0, 255, 0], Vec::new());
        assert_eq!((status, page.len()), (GOOD, 28));
        let count = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
        (count(8), count(20))
    }
}

#[test]
fn an_initiator_hears_when_its_pool_is_used_to_80_percent() {
    const BLOCKS: u32 = 128;
    let bench = Bench::new();
    let made = bench.run(&["pool", "create", "pool", "--drives", "2", "--size", "96MiB"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(bench.run(&["volume", "create", "pool/store", "64MiB"]).code, Some(0));
    let serving = Serving::begin(&bench, &["pool/store", "--name", "store"]);
    let mut session = Session::log_in(&serving.portal, serving.uris[0].split('/').nth(3).unwrap());
    let (status, sense) = session.ask(&[0; 6], Vec::new());
    assert_eq!((status, sense[12]), (CHECK, 0x29), "the reset when it came");
    let (all, none) = session.room();
    assert_eq!(none, 0);
    let mut block = 0_u32;
    let (used, sense) = loop {
        let at = block.to_be_bytes();
        let write = [code::WRITE_10, 0, at[0], at[1], at[2], at[3], 0, 0, BLOCKS as u8, 0];
        let data: Vec<u8> = (0..BLOCKS * 512).map(|byte| (byte / 512 + block + byte % 251) as u8).collect();
        match session.ask(&write, data) {
            (GOOD, _) => block += BLOCKS,
            (_, sense) => break (session.room().1, sense),
        }
        assert!(block < 131_072, "it is heard of before the volume is full");
    };
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x38, 0x07), "THIN PROVISIONING SOFT THRESHOLD REACHED");
    let percent = used * 100 / all;
    assert!((78..84).contains(&percent), "{used} of {all} MiB");
    assert_eq!(session.ask(&[0; 6], Vec::new()).0, GOOD, "it is told once");
}
