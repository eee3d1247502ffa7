//! Any bytes to the decoders of the format: an error, or something that is read back the same when it is written again.
//! The fuzz targets use it, too.

use vault::{
    blob_id::BlobId,
    index::{self, IndexedPack},
    keys::KeyFile,
    layout::SliceLayout,
    packs::{BlobKind, PackBuilder, PackedBlob, SealedBlob, blobs_of, decode_header, pack_bytes},
    record::{BackupRecord, RECORD_FORMAT, RECORD_VERSION, VolumeRecord},
    sealing::SealingKey,
    snapshots::VaultSnapshot,
    trees::{FileNode, FileTree, NO_TIME},
};

/// Applies all rules to `data`; the first byte chooses the decoder.
pub fn check(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    match first % 6 {
        0 => check_header(data),
        1 => check_index(data),
        2 => check_tree(data),
        3 => check_key(data),
        4 => check_record(data),
        _ => check_snapshot(data),
    }
}

fn key() -> SealingKey {
    SealingKey::of(&[7; 64])
}

/// A plain header: sealed behind as many bytes as it says, it is that of a pack.
fn check_header(data: &[u8]) {
    let Ok((blobs, content)) = decode_header(data) else { return };
    assert_eq!(content, blobs.iter().map(|blob| u64::from(blob.length)).sum::<u64>());
    if content > 1 << 16 {
        return;
    }
    let mut pack = vec![0; content as usize];
    let sealed = key().seal(&[1; 16], data);
    pack.extend_from_slice(&sealed);
    pack.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
    match blobs_of(&key(), &pack) {
        Ok(read) => assert_eq!(read, blobs),
        Err(error) => assert!(data.is_empty(), "{error}"),
    }
    assert_eq!(pack_bytes(&blobs), pack.len() as u64);
    for blob in &blobs {
        // Zeroes were sealed by nobody.
        assert!(
            blob.open(&key(), &pack[blob.offset as usize..(blob.offset + blob.length) as usize]).is_err()
        );
    }
}

fn check_index(data: &[u8]) {
    let Ok(packs) = index::decode(data) else { return };
    assert_eq!(index::decode(&index::encode(&packs)).expect("it was written just now"), packs);
}

fn check_tree(data: &[u8]) {
    let Ok(tree) = FileTree::decode(data) else { return };
    assert_eq!(FileTree::decode(&tree.encode()).expect("it was written just now"), tree);
}

fn check_key(data: &[u8]) {
    let Ok(file) = KeyFile::decode(data) else { return };
    let again = KeyFile::decode(&file.encode()).expect("it was written just now");
    assert_eq!(again.encode(), file.encode());
    // A cheap one is tried; costs beyond the bounds are refused before anything is computed.
    if String::from_utf8_lossy(&file.encode()).contains("\"N\":2,") {
        let _ = file.unlock(b"password");
    }
}

fn check_record(data: &[u8]) {
    let Ok(record) = BackupRecord::decode(data) else { return };
    assert_eq!(BackupRecord::decode(&record.encode()).expect("it was written just now"), record);
    for volume in &record.volumes {
        let (layout, size) = (volume.layout, volume.size_bytes);
        let folders = layout.folders(size);
        if let Some(last) = folders.checked_sub(1) {
            assert_eq!(layout.folder_range(last, size).end, size);
        }
        assert!(!volume.pool.contains('/') && !volume.volume.starts_with('.'));
    }
}

fn check_snapshot(data: &[u8]) {
    let Ok(snapshot) = VaultSnapshot::decode(data) else { return };
    assert_eq!(VaultSnapshot::decode(&snapshot.encode()).expect("it was written just now"), snapshot);
}

/// One input for each decoder, with its name.
pub fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let (one, two) = (BlobId([1; 32]), BlobId([2; 32]));
    let blob = |kind, id, offset, plain_length| PackedBlob { kind, id, offset, length: 70, plain_length };
    let blobs = vec![blob(BlobKind::Data, one, 0, None), blob(BlobKind::Tree, two, 70, Some(300))];
    let mut builder = PackBuilder::default();
    for blob in &blobs {
        let bytes = vec![0; blob.length as usize];
        builder.add(blob.kind, &SealedBlob { id: blob.id, bytes, plain_length: blob.plain_length });
    }
    let (pack, _) = builder.finish(&key(), &[1; 16]);
    let header = key().open(&pack[140..pack.len() - 4]).expect("it was sealed just now");
    let index = index::encode(&[IndexedPack { id: BlobId([3; 32]), blobs }]);
    let tree = FileTree::of(vec![
        FileNode::folder("mail".into(), NO_TIME, two),
        FileNode::file("00000000".into(), NO_TIME, 70, vec![one, two]),
    ]);
    let key_file = r#"{"hostname":"h","username":"u","kdf":"scrypt","N":2,"r":8,"p":1,"created":"","data":"AAAA","salt":"AAAA"}"#;
    let snapshot = VaultSnapshot {
        time: NO_TIME.into(),
        parent: Some(one),
        tree: two,
        paths: vec!["/post".into()],
        hostname: "mail".into(),
        username: "root".into(),
        uid: 0,
        gid: 0,
        tags: Some(vec!["spindle".into()]),
    };
    let inputs = [
        ("header", header),
        ("index", index),
        ("tree", tree.encode()),
        ("key", key_file.into()),
        ("record", record().encode()),
        ("snapshot", snapshot.encode()),
    ];
    let chosen =
        |(number, (name, bytes)): (usize, (_, Vec<u8>))| (name, [vec![number as u8], bytes].concat());
    inputs.into_iter().enumerate().map(chosen).collect()
}

fn record() -> BackupRecord {
    let [pool, volume, volume_id, snapshot, snapshot_id] =
        ["mail", "store", "1", "post-1", "2"].map(str::to_owned);
    let layout = SliceLayout::with_chunks(64 << 10);
    let size_bytes = (3 << 30) + 512;
    let volume =
        VolumeRecord { pool, volume, volume_id, snapshot, snapshot_id, size_bytes, block_bytes: 512, layout };
    BackupRecord {
        format: RECORD_FORMAT.into(),
        version: RECORD_VERSION,
        set: "post".into(),
        catalogue: "0123456789abcdef".into(),
        backup: 1,
        name: "post-1".into(),
        kind: "full".into(),
        label: "crash".into(),
        reason: None,
        evidence: Vec::new(),
        needs: Some(1),
        note: "note".into(),
        cut_at: None,
        is_scheduled: false,
        volumes: vec![volume],
        program: "spindle".into(),
    }
}
