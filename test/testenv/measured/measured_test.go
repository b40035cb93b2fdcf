package measured_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

func TestProfile(t *testing.T) {
	t.Setenv(measured.Variable, "")
	if p, err := measured.Profile(); err != nil || !reflect.DeepEqual(p, profile.Profile{}) {
		t.Errorf("without the variable: %+v, %v", p, err)
	}
	file := filepath.Join(t.TempDir(), "profile.json")
	t.Setenv(measured.Variable, file)
	if _, err := measured.Profile(); err == nil || !strings.Contains(err.Error(), measured.Variable) ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("a file that isn't there: %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"version": 1, "cloud": {"busy": "locked"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := measured.Profile(); err != nil || *p.Cloud.Busy != profile.Locked {
		t.Errorf("read %+v, %v", p, err)
	}
	t.Setenv(measured.Variable, "profile.json")
	if _, err := measured.Profile(); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("a relative path: %v", err)
	}
}
