package ipam

// A flaw is a deliberate violation of the protocol.
type flaw int

const (
	sound         flaw = iota
	anyVersion         // writes replace objects of any version
	unrecorded         // a PATCH is sent before the reservation is recorded
	leftEarly          // entries leave the root before their shard has them
	oldGeneration      // the root takes shards back without raising their generation
	twiceGranted       // two shards guard one block
	freedAlive         // a live Node is released
	oneReload          // after a conflict only the object's version is read again
)

// spoil applies the scope's flaw to a write.
func (sc *scope) spoil(p *process, w Write) (*process, Write) {
	m := p.recall()
	generation, _ := parseMark(w.Entries[MarkKey])
	switch {
	case sc.flaw == leftEarly && w.Object == RootObject:
		for name, text := range m.files.file(RootObject).pending {
			if text == "" {
				delete(w.Entries, name)
			}
		}
	case sc.flaw == twiceGranted && w.Object == RootObject && len(Listed(w.Entries)) == 1:
		w.Entries[shardKey(2)] = w.Entries[shardKey(1)]
	case sc.flaw == oldGeneration && w.Object != RootObject && m.files.listed[w.Object] > 0 && generation > m.files.listed[w.Object]:
		done := p.did(p.recall(), func(m *memory) { m.files.Wrote(w) })
		if next, after, ok := done.next(done.recall()); ok {
			return after, next
		}
	}
	return p, w
}
