package measure

import (
	"strings"
	"testing"
)

// Every fact that takes something of the user's says what it does to it, and no other does.
func TestTouched(t *testing.T) {
	for _, f := range Facts() {
		touches := f.Needs.Dedicated || f.Needs.VSwitch || f.Needs.Named
		if said := Touched([]FactID{f.ID}); (len(said) > 0) != touches {
			t.Errorf("%s: touches what isn't thrown away: %v, and says %q", f.ID, touches, said)
		}
	}
	if all := strings.Join(Touched([]FactID{VSwitchMTU, VSwitchSubnets, Neighbors}), " "); strings.Count(all, "coupled") != 1 {
		t.Errorf("it says twice the same: %s", all)
	}
}
