package main

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/config"
)

// While a control plane starts, there is no API server for a while. The manager must not exit for
// that, to be restarted with growing delays.
func TestTheLedgerOfAddressesIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(storedLedger(t, "192.0.2.9"))
		var away atomic.Bool
		away.Store(true)
		client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if away.Load() {
				return true, nil, errors.New("connection refused")
			}
			return false, nil, nil
		})
		m := &manager{config: config.Config{Addresses: config.Addresses{Pools: []config.AddressPool{pool(t, "192.0.2.7")}}}}
		done := make(chan error, 1)
		go func() { done <- m.checkAddresses(t.Context(), client) }()
		time.Sleep(time.Hour) // on the bubble's clock
		select {
		case err := <-done:
			t.Fatalf("it doesn't wait for the API server: %v", err)
		default:
		}
		if n := len(client.Actions()); n > 3600/5 {
			t.Errorf("%d requests in an hour", n)
		}
		away.Store(false)
		err := <-done
		if err == nil || !strings.Contains(err.Error(), "192.0.2.9") || !strings.Contains(err.Error(), "shop/web") {
			t.Errorf("an address of a Service is in no pool: %v", err)
		}
		without := &manager{}
		away.Store(true)
		if err := without.checkAddresses(t.Context(), client); err != nil {
			t.Errorf("without pools: %v", err)
		}
	})
}

func pool(t *testing.T, text string) config.AddressPool {
	t.Helper()
	r, err := addresses.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return config.AddressPool{Pool: addresses.Pool{Name: "segment", Ranges: []addresses.Range{r}}, Mover: addresses.Layer2}
}

// storedLedger has one address, of the Service shop/web.
func storedLedger(t *testing.T, address string) *corev1.ConfigMap {
	t.Helper()
	claim := addresses.Claim{
		UID: "u", Namespace: "shop", Name: "web", Families: []addresses.Family{addresses.IPv4}, Admitted: []string{"segment"},
	}
	ledger, refused := addresses.Ledger{}.Assign([]addresses.Pool{pool(t, address).Pool},
		[]addresses.Claim{claim})
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	text, err := ledger.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ledgerNamespace, Name: addresses.LedgerName},
		Data:       map[string]string{addresses.LedgerKey: string(text)},
	}
}
