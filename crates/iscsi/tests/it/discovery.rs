//! Discovery by open-iscsi: requests recorded from iscsiadm of open-iscsi 2.1.8 (Debian 12), byte for byte.

use crate::{
    scene::properties,
    sessions::{TARGET, address, encode, start, with_target},
};
use iscsi::{
    initiator::{InitiatorOptions, discover},
    scsi::unit::LogicalUnit,
    target::{Target, Targets, serve},
    wire::{
        header::{FINAL, NO_TAG, PduHeader, Text, TextResponse, opcode},
        pdu::{Digests, Pdu},
        text,
    },
};
use std::{collections::BTreeMap, rc::Rc};
use tokio::io::AsyncWriteExt;
use world::{
    BlockDevice, Stream, World,
    sim::{SimDrive, SimNetwork},
};

/// The header of its login request, which asks for the full feature phase at once.
const LOGIN: &str =
    "43870000000000e900023d00000000000000000000000000000000010000000000000000000000000000000000000000";
/// The keys of its login request, padded to a multiple of four bytes.
const LOGIN_KEYS: &[u8] =
    b"InitiatorName=iqn.2026-01.test.guest:1\0InitiatorAlias=(none)\0SessionType=Discovery\0\
    HeaderDigest=None\0DataDigest=None\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0IFMarker=No\0OFMarker=No\0\
    ErrorRecoveryLevel=0\0MaxRecvDataSegmentLength=32768\0\0\0\0";

/// The header of its text request.
const SEND_TARGETS: &str =
    "0480000000000010000000000000000000000001ffffffff000000010000000200000000000000000000000000000000";

fn pairs(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// Sends a recorded request and returns the keys of the answer.
async fn execute(stream: &mut Stream, header: &str, data: &[u8], expected: u8) -> Vec<(String, String)> {
    stream.write_all(&[&bytes(header)[..], data].concat()).await.unwrap();
    let answer = Pdu::read(stream, Digests::default(), 65_536).await.unwrap().unwrap();
    assert_eq!(answer.opcode(), expected);
    text::read(&answer.data).unwrap()
}

#[test]
fn open_iscsi_discovers_the_targets() {
    with_target(1, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let mut stream = network.host("guest").connect(&address()).await.unwrap();
        let answers = execute(&mut stream, LOGIN, LOGIN_KEYS, opcode::LOGIN_RESPONSE).await;
        // open-iscsi ends the login if ErrorRecoveryLevel is not 0 or a digest is not one it offered.
        let expected = [
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "0"),
            ("IFMarker", "No"),
            ("OFMarker", "No"),
            ("ErrorRecoveryLevel", "0"),
            ("MaxRecvDataSegmentLength", "262144"),
        ];
        assert_eq!(pairs(&answers), expected);
        let found = execute(&mut stream, SEND_TARGETS, b"SendTargets=All\0", opcode::TEXT_RESPONSE).await;
        assert_eq!(pairs(&found), [("TargetName", TARGET), ("TargetAddress", "server:3260,1")]);
    });
}

/// Enough targets to exceed open-iscsi's MaxRecvDataSegmentLength of 32,768 bytes.
const MANY: usize = 400;

async fn start_with_many(world: &World, network: &SimNetwork, drive: &Rc<SimDrive>) {
    let unit = Rc::new(LogicalUnit::new(properties(), Rc::clone(drive) as Rc<dyn BlockDevice>, None, false));
    let units = BTreeMap::from([(0, unit)]);
    let target = |at| Target { name: format!("iqn.2026-11.org.spindle:{at:0>60}"), units: units.clone() };
    let targets = Targets::new((0..MANY).map(target).collect());
    let listener = network.host("server").listen(&address()).await.unwrap();
    world.spawn("server", serve(world.clone(), listener.into(), targets, Rc::new(|_| {})));
}

/// A text request that continues an answer.
fn next_part(number: u32, ttt: u32) -> Vec<u8> {
    let request =
        Text { flags: FINAL, itt: 1.into(), ttt: ttt.into(), cmd_sn: number.into(), ..Text::empty() };
    encode(&request, Vec::new())
}

#[test]
fn a_send_targets_answer_beyond_max_recv_data_segment_length_is_complete() {
    with_target(2, |world, network, drive| async move {
        start_with_many(&world, &network, &drive).await;
        let mut stream = network.host("guest").connect(&address()).await.unwrap();
        execute(&mut stream, LOGIN, LOGIN_KEYS, opcode::LOGIN_RESPONSE).await;
        stream.write_all(&[&bytes(SEND_TARGETS)[..], b"SendTargets=All\0"].concat()).await.unwrap();
        let mut found = Vec::new();
        for number in 2.. {
            let answer = Pdu::read(&mut stream, Digests::default(), 32_768).await.unwrap().unwrap();
            let response = TextResponse::of(&answer.header);
            found.extend(text::read_up_to(MANY * 2, &answer.data).expect("each part is of whole pairs"));
            let transfer = response.ttt.get();
            if response.flags & FINAL != 0 {
                assert_eq!(transfer, NO_TAG);
                break;
            }
            assert!(
                response.flags & 0x40 != 0 && transfer != NO_TAG,
                "it says that more comes, and by which tag"
            );
            stream.write_all(&next_part(number, transfer)).await.unwrap();
        }
        let names = found.iter().filter(|(key, _)| key == "TargetName");
        assert_eq!(names.count(), MANY);
        // The exchange is over: a TTT of the past is rejected.
        stream.write_all(&next_part(3, 1)).await.unwrap();
        let answer = Pdu::read(&mut stream, Digests::default(), 32_768).await.unwrap().unwrap();
        assert_eq!(answer.opcode(), opcode::REJECT);
    });
}

#[test]
fn our_initiator_discovers_many_targets() {
    with_target(3, |world, network, drive| async move {
        start_with_many(&world, &network, &drive).await;
        let options = InitiatorOptions::default();
        let found = discover(&world, &*network.host("guest"), &address(), &options).await.unwrap();
        assert_eq!(found.len(), MANY);
    });
}
