package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// relist returns the next write toward a stored root that lists the shards of the layout.
func (f *Files) relist() (Write, bool) {
	if f.settled == f.ledger.layout.grown {
		return Write{}, false
	}
	for _, number := range f.ledger.layout.numbers() {
		if w, ok := f.list(number, f.ledger.layout.shards[number]); ok {
			return w, true
		}
	}
	unlisted := false
	for _, number := range slices.Sorted(maps.Keys(f.listed)) {
		if _, stays := f.ledger.layout.shards[number]; stays {
			continue
		}
		if f.generation(number) <= f.listed[number] {
			entries := maps.Clone(f.file(number).stored)
			entries[MarkKey] = mark(f.listed[number] + 1)
			return Write{Object: number, Entries: entries}, true
		}
		unlisted = true
	}
	if unlisted {
		for name := range f.ledger.names {
			f.Update(name, time.Time{})
		}
		w := f.write(RootObject, 0)
		w.Opens = true
		return w, true
	}
	f.settled = f.ledger.layout.grown
	return Write{}, false
}

// list returns the next write that makes a shard guard its blocks.
func (f *Files) list(number int, blocks []netip.Prefix) (Write, bool) {
	file := f.file(number)
	named, has := f.listed[number], f.generation(number)
	switch {
	case file.stored == nil:
		return Write{Object: number, Open: true}, true
	case f.lost():
		if f.filled[number] == join(blocks, " ") {
			return Write{}, false
		}
		f.move(blocks)
		w := f.write(number, has+1)
		w.fills = join(blocks, " ")
		return w, true
	case named == 0 && len(file.stored) == 0:
		// An object without entries would be taken for a lost one.
		return Write{Object: number, Entries: map[string]string{MarkKey: mark(1)}}, true
	case has > named || !slices.Equal(f.layout.shards[number], blocks):
		entries := maps.Clone(f.file(RootObject).stored)
		entries[shardKey(number)] = listing(max(has, named)+1, blocks)
		return Write{Object: RootObject, Entries: entries}, true
	case named > has:
		f.move(blocks)
		w := f.write(number, named)
		w.Opens = true
		return w, true
	}
	return Write{}, false
}

func (f *Files) lost() bool { return len(f.file(RootObject).stored) == 0 }

// move marks every name that holds something in the blocks as pending in all objects.
func (f *Files) move(blocks []netip.Prefix) {
	names := map[string]bool{}
	for _, b := range blocks {
		for _, claims := range f.ledger.claims.overlapping(b) {
			for _, c := range claims {
				names[c.holder.node.Name] = true
			}
		}
	}
	for name := range names {
		f.Update(name, time.Time{})
	}
}

// Anew returns the next write that stores a ledger with a lost root: the root's after all shards.
func (f *Files) Anew() Write {
	if w, ok := f.relist(); ok {
		return w
	}
	return f.write(RootObject, 0)
}

// Relieve moves a part of the root to a shard. It reports false if that is not possible.
func (f *Files) Relieve() bool {
	number, ok := f.ledger.relieve()
	if ok {
		f.move(f.ledger.layout.shards[number])
	}
	return ok
}
