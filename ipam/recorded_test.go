package ipam

import "testing"

// An entry of a shard counts as recorded only if the root, as others read it, lists the shard as
// the guard of that block.
func TestRecordedOnlyWhereItIsGuarded(t *testing.T) {
	node := Node{Name: "n", UID: "u"}
	for name, c := range map[string]struct {
		listed string // how the root lists the shard
		grant  string // a block that the shard is to have too
		want   bool
	}{
		"the shard guards it":                           {"generation=2 10.0.2.0/23", "", true},
		"the root names another generation":             {"generation=3 10.0.2.0/23", "", false},
		"the root does not list the shard's block yet":  {"generation=2 10.0.8.0/23", "10.0.2.0/23", false},
		"the root lists no block of it and guards this": {"generation=2 10.0.8.0/23", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := map[int]map[string]string{
				RootObject: {shardKey(1): c.listed},
				1:          {MarkKey: mark(2), node.Name: "uid=u 10.0.2.0/24@v4"},
			}
			stored, damaged := ParseStored(objects)
			if len(damaged) > 0 {
				t.Fatal(damaged[0])
			}
			r, err := Rebuild(Facts{Pools: widePools()[:1], Stored: stored, Now: noon, BlockBits: 1})
			if err != nil {
				t.Fatal(err)
			}
			f := NewFiles(r.Ledger, objects)
			if c.grant != "" {
				r.Ledger.layout.add(1, pfx(c.grant))
			}
			if got := f.Recorded(node.UID); got != c.want {
				t.Errorf("Recorded = %t, want %t", got, c.want)
			}
		})
	}
}
