package main

import (
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	appconfig "k8s.io/cloud-provider/app/config"
)

// answers are the responses of an API server about its resources, one after the other.
type answers struct {
	discovery.DiscoveryInterface
	all   []error
	asked int
}

func (a *answers) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	err := a.all[min(a.asked, len(a.all)-1)]
	a.asked++
	return &metav1.APIResourceList{}, err
}

// A new leader retries after a lost response, and accepts "not found" as a result.
func TestServiceCIDRsOfAnAPIServer(t *testing.T) {
	lost := errors.New("stream error")
	absent := apierrors.NewNotFound(schema.GroupResource{Group: "networking.k8s.io"}, "v1")
	for name, c := range map[string]struct {
		answers []error
		asked   int
		fails   bool
	}{
		"an answer":              {[]error{nil}, 1, false},
		"lost twice, then there": {[]error{lost, lost, nil}, 3, false},
		"an old API server":      {[]error{absent}, 1, false},
		"lost for good":          {[]error{lost}, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &answers{all: c.answers}
				informer, err := serviceCIDRs(&appconfig.CompletedConfig{}, client)
				if (err != nil) != c.fails || client.asked != c.asked || informer != nil {
					t.Errorf("asked %d times, error %v, informer %v", client.asked, err, informer)
				}
			})
		})
	}
}
