//! Streams of snapshot metadata: whole, in order, as fast as the reader, and no longer than it is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
#[allow(dead_code, reason = "another test uses the rest")]
mod false_api;

use std::time::{Duration, Instant};

use proto::csi::snapshot_metadata_client::SnapshotMetadataClient;
use proto::csi::*;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;

use false_api::{Driver, LATER, Mode, OTHER, SNAPSHOT, snapshot};

const SIZE: i64 = 1 << 20;

fn page(extents: &[(u64, u64)], next: Option<u64>) -> Value {
    let extents = extents.iter().map(|(offset, len)| json!({"offset": offset, "len": len}));
    json!({"extents": extents.collect::<Vec<Value>>(), "size": SIZE, "next": next})
}

fn extents() -> String {
    format!("GET /v1/snapshots/{SNAPSHOT}/extents")
}

async fn start() -> (Driver, SnapshotMetadataClient<Channel>) {
    let driver = Driver::start(Mode::Controller).await;
    for (uid, at) in [(SNAPSHOT, 5), (LATER, 6)] {
        driver.api.answer(&format!("GET /v1/snapshots/{uid}"), snapshot(uid, at));
    }
    let client = SnapshotMetadataClient::new(driver.channel.clone());
    (driver, client)
}

fn allocated(starting_offset: i64, max_results: i32) -> GetMetadataAllocatedRequest {
    GetMetadataAllocatedRequest {
        snapshot_id: SNAPSHOT.into(),
        starting_offset,
        max_results,
        ..GetMetadataAllocatedRequest::default()
    }
}

/// How many blocks each message has, or the error at the end.
async fn counts(
    client: &mut SnapshotMetadataClient<Channel>,
    request: GetMetadataAllocatedRequest,
) -> Result<Vec<usize>, Code> {
    let answer = client.get_metadata_allocated(request).await.map_err(|it| it.code())?;
    let (mut messages, mut counts) = (answer.into_inner(), Vec::new());
    while let Some(message) = messages.message().await.map_err(|it| it.code())? {
        assert_eq!(message.volume_capacity_bytes, SIZE);
        assert_eq!(message.block_metadata_type(), BlockMetadataType::VariableLength);
        counts.push(message.block_metadata.len());
    }
    Ok(counts)
}

#[tokio::test]
async fn all_pages_are_told_in_messages_of_the_asked_size() {
    let (driver, mut client) = start().await;
    let pages = || {
        driver.api.forget(&extents());
        driver.api.answer(&extents(), page(&[(0, 4096), (8192, 4096), (16384, 4096)], Some(65536)));
        driver.api.answer(&extents(), page(&[], Some(131_072)));
        driver.api.answer(&extents(), page(&[(131_072, 4096)], None));
    };
    pages();
    assert_eq!(counts(&mut client, allocated(0, 0)).await, Ok(vec![3, 1]));
    let lines: Vec<String> = driver.api.asked().into_iter().map(|asked| asked.line).collect();
    let from = |from: u64| format!("{}?from={from}&limit=1024", extents());
    assert_eq!(lines[1..], [from(0), from(65536), from(131_072)]);
    pages();
    assert_eq!(counts(&mut client, allocated(0, 2)).await, Ok(vec![2, 1, 1]));
    pages();
    assert_eq!(counts(&mut client, allocated(10_000, 2)).await, Ok(vec![2, 1]));
}

#[tokio::test]
async fn an_empty_snapshot_tells_its_size_and_an_error_ends_a_stream() {
    let (driver, mut client) = start().await;
    driver.api.answer(&extents(), page(&[], None));
    assert_eq!(counts(&mut client, allocated(0, 0)).await, Ok(vec![0]));
    assert_eq!(counts(&mut client, allocated(SIZE, 0)).await, Ok(vec![0]));
    driver.api.forget(&extents());
    driver.api.answer(&extents(), page(&[(0, 4096)], Some(4096)));
    driver.api.answer(&extents(), page(&[(0, 4096)], None));
    assert_eq!(counts(&mut client, allocated(0, 0)).await, Err(Code::Internal));
}

#[tokio::test]
async fn what_cannot_be_told() {
    let (_driver, mut client) = start().await;
    let other = "00000000000000000000000000000b09".to_owned();
    for (request, code) in [
        (allocated(-1, 0), Code::OutOfRange),
        (allocated(SIZE + 1, 0), Code::OutOfRange),
        (allocated(0, -1), Code::InvalidArgument),
        (
            GetMetadataAllocatedRequest { snapshot_id: String::new(), ..allocated(0, 0) },
            Code::InvalidArgument,
        ),
        (
            GetMetadataAllocatedRequest { snapshot_id: "s".into(), ..allocated(0, 0) },
            Code::NotFound,
        ),
        (GetMetadataAllocatedRequest { snapshot_id: other, ..allocated(0, 0) }, Code::NotFound),
    ] {
        assert_eq!(counts(&mut client, request).await, Err(code));
    }
}

#[tokio::test]
async fn a_delta_is_told_from_the_older_to_the_younger() {
    let (driver, mut client) = start().await;
    let delta = |base: &str, target: &str| GetMetadataDeltaRequest {
        base_snapshot_id: base.into(),
        target_snapshot_id: target.into(),
        ..GetMetadataDeltaRequest::default()
    };
    let line = format!("GET /v1/snapshots/{LATER}/extents");
    driver.api.answer(&line, page(&[(4096, 4096)], None));
    let told = client.get_metadata_delta(delta(SNAPSHOT, LATER)).await.unwrap();
    let message = told.into_inner().message().await.unwrap().unwrap();
    assert_eq!(message.block_metadata, [BlockMetadata { byte_offset: 4096, size_bytes: 4096 }]);
    let asked = driver.api.asked().pop().unwrap();
    assert_eq!(asked.line, format!("{line}?from=0&limit=1024&base={SNAPSHOT}"));

    let mut elsewhere = snapshot(OTHER, 9);
    elsewhere["volumeUid"] = OTHER.into();
    driver.api.answer(&format!("GET /v1/snapshots/{OTHER}"), elsewhere);
    for (base, target, code) in [
        ("", LATER, Code::InvalidArgument),
        (SNAPSHOT, "", Code::InvalidArgument),
        (LATER, SNAPSHOT, Code::InvalidArgument),
        (SNAPSHOT, SNAPSHOT, Code::InvalidArgument),
        (SNAPSHOT, OTHER, Code::InvalidArgument),
        ("nothing", LATER, Code::NotFound),
        (SNAPSHOT, "nothing", Code::NotFound),
    ] {
        let status = client.get_metadata_delta(delta(base, target)).await.unwrap_err();
        assert_eq!(status.code(), code, "{base} {target}: {status}");
    }
}

/// How often the site was asked, once nobody asks it any more.
async fn settled(driver: &Driver) -> usize {
    let begun = Instant::now();
    let mut before = usize::MAX;
    loop {
        let now = driver.api.count();
        if now == before {
            return now;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the site is asked without end");
        before = now;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Protects from reading a whole volume's map into memory for a reader that is slow, or gone.
#[tokio::test]
async fn a_reader_that_waits_is_waited_for_and_one_that_went_is_forgotten() {
    let (driver, mut client) = start().await;
    let mut large = snapshot(SNAPSHOT, 5);
    large["size"] = json!(1_u64 << 50);
    driver.api.forget(&format!("GET /v1/snapshots/{SNAPSHOT}"));
    driver.api.answer(&format!("GET /v1/snapshots/{SNAPSHOT}"), large);
    // Enough for a thousand pages; nobody is to ask for all of them.
    for number in 0..1000_u64 {
        let begin = number << 30;
        let blocks: Vec<(u64, u64)> = (0..1024).map(|at| (begin + (at << 13), 4096)).collect();
        driver.api.answer(&extents(), page(&blocks, Some((number + 1) << 30)));
    }
    let mut messages = client.get_metadata_allocated(allocated(0, 0)).await.unwrap().into_inner();
    messages.message().await.unwrap().unwrap();
    let asked = settled(&driver).await;
    assert!(asked < 500, "{asked} pages for a reader of one");
    for _ in 0..200 {
        messages.message().await.unwrap().unwrap();
    }
    assert!(settled(&driver).await >= 200, "it goes on when it is read");
    drop(messages);
    let asked = settled(&driver).await;
    assert!(asked < 900, "{asked}");
    assert_eq!(settled(&driver).await, asked);
}
