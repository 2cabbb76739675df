package fallback_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/interop/proxytest"
	"github.com/penstock-go/penstock/router"
)

// forcedBuffering makes nginx hold a response until it has ended.
const forcedBuffering = "proxy_ignore_headers X-Accel-Buffering;"

// behindNginx returns a case for nginx, which forwards no upgrades, compresses, and limits bodies. It sends each request
// to the next node, and repeats a POST if a node does not answer.
func behindNginx(name string, transports []router.Transport, listen, buffering string) proxyCase {
	return proxyCase{name: name, transports: transports, start: func(t *testing.T, s *site) string {
		t.Helper()
		program, dir, addr := proxytest.Program(t, "nginx"), t.TempDir(), freeport.Address()
		proxytest.WriteCertificate(t, dir)
		nodes := ""
		for _, node := range s.nodes {
			nodes += fmt.Sprintf("server %s max_fails=0; ", strings.TrimPrefix(node, "http://"))
		}
		block := fmt.Sprintf(`
			upstream nodes { %[1]s }
			server {
				listen %[2]s %[3]s;
				ssl_certificate %[4]s/example.com.pem;
				ssl_certificate_key %[4]s/example.com.key;
				gzip on;
				gzip_types *;
				gzip_min_length 1;
				client_max_body_size 64k;
				location / {
					proxy_pass http://nodes;
					proxy_http_version 1.1;
					proxy_set_header Host $http_host;
					proxy_set_header X-Forwarded-Proto $scheme;
					proxy_read_timeout 20s;
					proxy_next_upstream error timeout http_503 non_idempotent;
					%[5]s
				}
			}`, nodes, addr, listen, dir, buffering)
		proxytest.Run(t, program, dir, proxytest.NginxCommand(t, dir, block), addr)
		if strings.Contains(listen, "ssl") {
			return "https://" + addr
		}
		return "http://" + addr
	}}
}
