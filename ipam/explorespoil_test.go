package ipam

// A flaw is a deliberate violation of the protocol.
type flaw int

const (
	sound      flaw = iota
	anyVersion      // writes replace objects of any version
	unrecorded      // a PATCH is sent before the reservation is recorded
	oneShard        // a PATCH is sent when one of a prefix's shards has recorded it
	freedAlive      // a live Node is released
	oneReload       // after a conflict only the object's version is read again
)

// recorded reports whether a process with the scope's flaw takes a reservation as recorded.
func (sc *scope) recorded(m *memory, uid string) bool {
	switch sc.flaw {
	case unrecorded:
		return true
	case oneShard:
		h, ok := m.ledger.Lookup(uid)
		for _, object := range h.shards() {
			if object < exploreObjects {
				return m.files.files[object].stored[h.Node.Name] == h.part(object).Record()
			}
		}
		return ok
	}
	return m.files.Recorded(uid)
}
