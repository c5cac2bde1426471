//! Bytes that mean no good.
use crate::scsi::drive::drive;
use crate::scsi::opcodes;

struct Chance(u64);

impl Chance {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        self.0.to_be_bytes()[1]
    }

    /// One in so many.
    fn one_in(&mut self, many: u8) -> bool {
        self.byte().is_multiple_of(many)
    }
}

#[test]
fn random_bytes_never_harm() {
    let mut chance = Chance(1);
    for _ in 0..3000 {
        let len = usize::from(chance.byte()) * 4;
        let bytes: Vec<u8> = (0..len).map(|_| chance.byte()).collect();
        drive(&bytes);
    }
}

/// Mostly answers; now and then a failure, an abort, a new size, or a nexus that goes and comes.
fn event(chance: &mut Chance) -> [u8; 3] {
    let kind = match chance.byte() {
        0..3 => 1,
        3..9 => 0,
        9..14 => 2,
        14..16 => 7,
        16..40 => 6,
        _ => 3,
    };
    let at = (chance.byte() & 3) << 4;
    [at | kind, chance.byte(), chance.byte()]
}

/// A command that there is, with fields that are mostly right.
fn command(chance: &mut Chance, known: &[Vec<u8>]) -> Vec<u8> {
    let bits = &known[usize::from(chance.byte()) % known.len()];
    let mut cdb = [0; 16];
    for (byte, bits) in cdb.iter_mut().zip(bits).skip(2) {
        *byte = bits & if chance.one_in(12) { chance.byte() } else { 0 };
    }
    // The ends of addresses and lengths, wherever they are.
    for end in [5, bits.len() - 2, bits.len() - 3] {
        cdb[end] = bits[end] & (chance.byte() % 25);
    }
    let has_actions = known.iter().filter(|other| other[0] == bits[0]).count() > 1;
    let flags = if has_actions { bits[1] } else { bits[1] & chance.byte() };
    (cdb[0], cdb[1]) = (bits[0], if chance.one_in(20) { chance.byte() } else { flags });
    let data = chance.byte() % 40;
    let simple = if chance.one_in(12) { 0 } else { 4 };
    let how = (chance.byte() & 0x1F) | simple;
    let mut script = vec![0x0F, chance.byte(), how];
    script.extend(cdb);
    script.push(data);
    if how & 0x18 == 0 {
        script.extend((0..data).map(|_| chance.byte() % 20));
    }
    script
}

#[test]
fn random_scripts_never_harm() {
    let known = opcodes::every();
    let mut chance = Chance(2);
    for _ in 0..6000 {
        let mut script = vec![chance.byte() & 3];
        for nexus in 0..3 {
            script.extend([0, nexus, 0]);
        }
        for _ in 0..60 {
            if chance.one_in(2) {
                script.extend(event(&mut chance));
            } else {
                script.extend(command(&mut chance, &known));
            }
        }
        drive(&script);
    }
}
