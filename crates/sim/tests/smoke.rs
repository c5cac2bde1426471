use block::*;
use engine::*;
use sim::*;

#[test]
fn write_read_reopen() {
    let mut disk = CrashDisk::new(ByteLen(16 << 20), SectorSize::B4096, 1).with_delivery(Delivery::Random);
    create(&mut disk, &CreateOptions { uuid: [7; 16], ..Default::default() }).unwrap();
    let mut pool = Pool::open(disk, OpenOptions::with(Limits::tiny())).unwrap();
    let spec = VolumeSpec { name: "a".into(), size: ByteLen(64 << 20), block_size: BlockSize::new(4096).unwrap(), uid: [1; 16] };
    let Reply::Created(v) = pool.run(Op::Create { spec }).unwrap() else { panic!() };
    let mut seq = 0;
    for round in 0..200u64 {
        seq += 1;
        let off = (round * 7919 % 3000) * 512;
        let len = 512 * (1 + round % 40);
        let data = vec![(round % 255 + 1) as u8; len as usize];
        pool.run(Op::Write { volume: v, position: Position::new(1, seq), offset: ByteOffset(off), data: Data::copy_of(&data) }).unwrap();
        let Reply::Read(back) = pool.run(Op::Read { volume: v, offset: ByteOffset(off), len: ByteLen(len) }).unwrap() else { panic!() };
        assert_eq!(&back[..], &data[..]);
    }
    pool.run(Op::Flush).unwrap();
    println!("{:?}", pool.counters());
    println!("{:?}", pool.info());
    let disk = pool.close().unwrap();
    let mut disk = disk;
    let report = check::check(&mut disk, check::Depth::Data).unwrap();
    println!("{report:?}");
    assert!(report.is_clean());
    let pool = Pool::open(disk, OpenOptions::with(Limits::tiny())).unwrap();
    println!("{:?}", pool.info());
}
