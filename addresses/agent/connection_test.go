package agent

import (
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/addresses"
)

// tunnel forwards bytes until it is cut; then it accepts bytes and sends none, like a proxy with a
// dead upstream.
type tunnel struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	cut      bool
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tun := &tunnel{listener: listener, to: to}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go tun.pass(client, server)
			go tun.pass(server, client)
		}
	}()
	return tun
}

func (tun *tunnel) set(cut bool) {
	tun.mu.Lock()
	defer tun.mu.Unlock()
	tun.cut = cut
}

func (tun *tunnel) pass(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1<<15)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		tun.mu.Lock()
		cut := tun.cut
		tun.mu.Unlock()
		if cut {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A dead connection is detected within about three seconds, even if every byte is acknowledged, and
// the doubt ends as soon as a new connection works.
func TestAConnectionThatLeadsNowhere(t *testing.T) {
	stored := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: addresses.LedgerName, UID: "one", ResourceVersion: "7"}, Data: map[string]string{addresses.LedgerKey: ledgerText("192.0.2.1 a 3")}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		if r.ProtoMajor != 2 || r.URL.Query().Get("fieldSelector") != "metadata.name="+addresses.LedgerName {
			t.Errorf("asked for %s by %s", r.URL, r.Proto)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_ = json.NewEncoder(w).Encode(corev1.ConfigMapList{
				TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.ConfigMap{stored},
			})
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	tun := newTunnel(t, server.Listener.Addr().String())
	client, err := Connect(&rest.Config{
		Host:            "https://" + tun.listener.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), ServerName: "example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	doubts := make(chan bool, 16)
	reader := Reader{
		ConfigMaps: client.CoreV1().ConfigMaps(LedgerNamespace), Read: func(addresses.Ledger, string) {},
		Doubt: func(doubt bool, _ error) { doubts <- doubt },
	}
	go reader.Run(t.Context())
	expect := func(doubt bool, within time.Duration) {
		t.Helper()
		began := time.Now()
		select {
		case got := <-doubts:
			if got != doubt {
				t.Fatalf("doubt is %v", got)
			}
			t.Logf("doubt is %v after %s", got, time.Since(began))
		case <-time.After(within):
			t.Fatalf("doubt is not %v after %s", doubt, within)
		}
	}
	expect(false, 5*time.Second)
	for range 2 {
		tun.set(true)
		expect(true, pingEvery+pingWithin+2*replyTimeout+time.Second)
		tun.set(false)
		expect(false, 10*time.Second)
	}
}
