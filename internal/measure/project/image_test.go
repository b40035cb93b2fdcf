package project_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

func TestTheImageIsLookedForFirst(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p := w.project(nil)
		snapshot, err := w.sim.CreateImage(hcloudsim.ImageSeed{Description: "ours"})
		noError(t, err)
		foreign, err := w.sim.CreateImage(hcloudsim.ImageSeed{Description: "other", Architecture: "arm"})
		noError(t, err)
		for image, is := range map[string]bool{
			"debian-12": true, "nope": false, "999999": false,
			strconv.FormatInt(snapshot.ID, 10): true, strconv.FormatInt(foreign.ID, 10): false,
		} {
			err := p.CheckImage(t.Context(), image)
			if is {
				noError(t, err)
			} else if err == nil || !strings.Contains(err.Error(), "--image") || !strings.Contains(err.Error(), image) {
				t.Errorf("image %q: %v", image, err)
			}
		}
		none, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run})
		noError(t, err)
		noError(t, none.CheckImage(t.Context(), "nope")) // no server is made
	})
}
