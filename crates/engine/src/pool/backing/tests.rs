use block::SectorSize;

use super::*;
use crate::format::SPACE_SPAN;
use crate::limits::{JOURNAL_AT, JOURNAL_BLOCK, JOURNAL_MIN, REGION_MIN};

fn layout(sector: SectorSize, journal: u64, inside: u64) -> Layout {
    let per = |bytes: u64| bytes / sector.bytes();
    let regions_at = per(JOURNAL_AT + journal);
    Layout {
        sector,
        sectors: regions_at + inside,
        regions_at: Sector(regions_at),
        journal_at: Sector(per(JOURNAL_AT)),
        journal_blocks: journal / JOURNAL_BLOCK as u64,
    }
}

/// Protects from a space page that is written where the file has no blocks.
#[test]
fn no_region_that_begins_before_the_end_of_a_step_has_a_head_behind_it() {
    let mut cut = 0;
    for sector in [SectorSize::B512, SectorSize::B4096] {
        let least = REGION_MIN / sector.bytes();
        for journal in [JOURNAL_MIN, 2 << 20, 5 << 20, 32 << 20, 33 << 20] {
            for inside in [least, SPACE_SPAN + least - 1, 70 * SPACE_SPAN, 90 * SPACE_SPAN + least]
            {
                let layout = layout(sector, journal, inside);
                let mut end = step_up(&layout, layout.first_home_end().0);
                loop {
                    let heads = (0..layout.regions()).map(|it| layout.region_heads(Region(it)));
                    let mut begun = heads.filter(|[first, _]| first.start.0 < end);
                    assert!(begun.all(|[_, second]| second.end().0 <= end), "{end} of {layout:?}");
                    assert!(end <= layout.sectors);
                    cut += u64::from(!end.is_multiple_of(layout.per(STEP)) && end < layout.sectors);
                    if end == layout.sectors {
                        break;
                    }
                    let next = step_up(&layout, end + 1);
                    assert!(next > end);
                    end = next;
                }
            }
        }
    }
    assert!(cut > 0, "some steps end within the heads of a region");
}
