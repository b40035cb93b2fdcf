package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// relist is the next write that has the root list what it should.
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

// list is the next write that makes a shard guard its blocks.
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
		// An object without entries would look as if it had lost them.
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

// lost reports whether there is no root.
func (f *Files) lost() bool { return len(f.file(RootObject).stored) == 0 }

// move brings up to date in every object what is held in blocks.
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

// Anew is the next write that stores a ledger of which the root is lost: the root's, after all that
// it is to list.
func (f *Files) Anew() Write {
	if w, ok := f.relist(); ok {
		return w
	}
	return f.write(RootObject, 0)
}

// Relieve gives a part of what the root guards to a shard. It reports false where it can't.
func (f *Files) Relieve() bool {
	number, ok := f.ledger.relieve()
	if ok {
		f.move(f.ledger.layout.shards[number])
	}
	return ok
}
