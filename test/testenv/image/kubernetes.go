//go:build linux

package image

import (
	"context"
	"fmt"

	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

// protocols are those of Services. If the file lacks them, nft's JSON contains numbers instead of
// their names, and kube-proxy, which reads its maps from there, deletes its own elements.
// https://www.iana.org/assignments/protocol-numbers
const protocols = "tcp 6 TCP\nudp 17 UDP\nsctp 132 SCTP\n"

// Kubernetes returns the images that kubeadm pulls, by their full names. They serve the same
// purpose as the published ones; kube-proxy has nft, and no iptables.
func Kubernetes(ctx context.Context, programs machine.Programs) (map[string]Image, error) {
	names, err := programs.Images(ctx)
	if err != nil {
		return nil, err
	}
	nft, err := HostProgram(ctx, "nft")
	if err != nil {
		return nil, err
	}
	// kubeadm's manifests run the programs by their names, and kube-proxy by its path. A single
	// file is also a single layer, of which a machine has one copy.
	binary := func(file, program string) Image {
		return Image{
			Layers:     []Files{{"/usr/local/bin/" + file: programs.Path("bin/" + file)}},
			Links:      map[string]string{"/usr/local/bin/" + program: file},
			Entrypoint: []string{"/usr/local/bin/" + program}, Env: []string{Path},
		}
	}
	images := map[string]Image{
		"coredns": {Layers: []Files{{"/coredns": programs.Path("image/coredns")}}, Entrypoint: []string{"/coredns"}, User: "65532:65532", Env: []string{Path}},
		"pause":   {Layers: []Files{{"/pause": programs.Path("image/pause")}}, Entrypoint: []string{"/pause"}, User: "65535:65535", Env: []string{Path}},
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy"} {
		images[program] = binary("kube", program)
	}
	images["kube-scheduler"] = binary("node", "kube-scheduler")
	proxy := images["kube-proxy"]
	proxy.Layers = append(proxy.Layers, nft)
	proxy.Texts = map[string]string{"/etc/protocols": protocols}
	images["kube-proxy"] = proxy

	named := map[string]Image{}
	for program, full := range names {
		image, ok := images[program]
		if !ok {
			return nil, fmt.Errorf("kubeadm asks for %s, which nobody makes", full)
		}
		named[full] = image
	}
	if len(named) != len(images) {
		return nil, fmt.Errorf("kubeadm asks for %v, and there are images for %d", names, len(images))
	}
	return named, nil
}
