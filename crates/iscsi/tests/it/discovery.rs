//! Discovery as open-iscsi does it: requests recorded from iscsiadm of open-iscsi 2.1.8 (Debian 12), byte for byte.

use crate::sessions::{TARGET, address, start, with_target};
use iscsi::wire::{
    frame::{Digests, Frame},
    pdu::opcode,
    text,
};
use tokio::io::AsyncWriteExt;
use world::Stream;

/// Header of its login request: straight to the full feature phase.
const LOGIN: &str =
    "43870000000000e900023d00000000000000000000000000000000010000000000000000000000000000000000000000";
/// Keys of that request, padded to a multiple of four bytes.
const LOGIN_KEYS: &[u8] =
    b"InitiatorName=iqn.2026-01.test.guest:1\0InitiatorAlias=(none)\0SessionType=Discovery\0\
    HeaderDigest=None\0DataDigest=None\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0IFMarker=No\0OFMarker=No\0\
    ErrorRecoveryLevel=0\0MaxRecvDataSegmentLength=32768\0\0\0\0";

/// Header of its text request.
const SEND_TARGETS: &str =
    "0480000000000010000000000000000000000001ffffffff000000010000000200000000000000000000000000000000";

fn pairs(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// Sends a request as it was recorded; the pairs it is answered with.
async fn ask(stream: &mut Stream, header: &str, data: &[u8], expected: u8) -> Vec<(String, String)> {
    stream.write_all(&[&bytes(header)[..], data].concat()).await.unwrap();
    let answer = Frame::read(stream, Digests::default(), 65_536).await.unwrap().unwrap();
    assert_eq!(answer.opcode(), expected);
    text::read(&answer.data).unwrap()
}

#[test]
fn open_iscsi_gets_a_value_for_each_key_of_its_discovery_and_then_the_targets() {
    with_target(1, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let mut stream = network.host("guest").connect(&address()).await.unwrap();
        let answers = ask(&mut stream, LOGIN, LOGIN_KEYS, opcode::LOGIN_RESPONSE).await;
        // It ends the login if ErrorRecoveryLevel is not 0, or a digest is not the one it wants.
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
        let found = ask(&mut stream, SEND_TARGETS, b"SendTargets=All\0", opcode::TEXT_RESPONSE).await;
        assert_eq!(pairs(&found), [("TargetName", TARGET), ("TargetAddress", "server:3260,1")]);
    });
}
