package project_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// An address that bears no label and stays when what had it is removed is named, and not removed.
func TestSweepTellsOfAddressesThatOutliveTheirHolders(t *testing.T) {
	for name, row := range map[string]struct {
		// then is done to the address, which has the path.
		then   func(w *world, path string)
		killed bool // another process sweeps
		left   bool
	}{
		"stays":             {left: true},
		"stays, of another": {left: true, killed: true},
		"goes late": {then: func(w *world, path string) {
			time.AfterFunc(40*time.Second, func() { w.direct("DELETE", path, "") })
		}},
		"can't be looked at": {then: func(w *world, _ string) {
			noError(w.t, w.sim.Inject(hcloudsim.Fault{Match: "GET /primary_ips/{id}", Code: "server_error", Times: -1}))
		}, left: true},
		"is somebody's": {then: func(w *world, path string) {
			bare := w.make("/servers", `{"name": "bare", "server_type": "cx23", "image": "debian-12", "location": "nbg1", "start_after_create": false, "public_net": {"enable_ipv4": false, "enable_ipv6": true}}`)
			w.theirs = w.theirs[:len(w.theirs)-1] // is about to change
			time.AfterFunc(10*time.Second, func() {
				if status, text := w.direct("POST", path+"/actions/assign", fmt.Sprintf(`{"assignee_id": %d, "assignee_type": "server"}`, bare)); status != http.StatusCreated {
					w.t.Errorf("assigning it: %d %s", status, text)
				}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inProject(t, slow(), func(t *testing.T, w *world) {
				p := w.project(nil)
				made, err := furnish(t.Context(), p)
				noError(t, err)
				shown, _, err := p.Client().LoadBalancer.GetByID(t.Context(), made.balancer.ID)
				noError(t, err)
				address := shown.PublicNet.IPv4.ID // the other one is the run's own
				path := fmt.Sprintf("/primary_ips/%d", address)
				if status, text := w.direct("PUT", path, `{"auto_delete": false}`); status != http.StatusOK {
					t.Fatalf("%d %s", status, text)
				}
				if row.then != nil {
					row.then(w, path)
				}
				if row.killed {
					p = w.project(nil)
				}
				_, err = p.Sweep(t.Context())
				var left *project.LeftBehind
				if errors.As(err, &left) != row.left {
					t.Fatalf("left behind: %v", err)
				}
				switch {
				case left == nil:
				case left.Err != nil: // nobody knows
					if !hcloud.IsError(err, hcloud.ErrorCodeServerError) || !strings.Contains(err.Error(), "measure clean") {
						t.Error(err)
					}
				case len(left.Things) != 1 || left.Things[0].ID != address || !left.Things[0].ByHand:
					t.Errorf("left are %+v", left.Things)
				case !strings.Contains(err.Error(), fmt.Sprint("primary-ip delete ", address)) || strings.Contains(err.Error(), "measure clean"):
					t.Error(err)
				}
				w.sim.ClearFaults()
				if status, _ := w.direct("GET", path, ""); (status == http.StatusOK) != (name != "goes late") {
					t.Errorf("looking at the address: status %d", status)
				}
				w.untouched()
			})
		})
	}
}
