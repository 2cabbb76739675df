package penstock.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The example of README.md. */
final class JavaProgram {
    private JavaProgram() {}

    /** Returns the last text of the room, and what was said meanwhile. */
    static String[] run(String url) throws Exception {
        CompletableFuture<String> said = new CompletableFuture<>();
        // README: begin java
        JavaClient client = new JavaClient(url);
        client.on("SAID", message -> said.complete(String.valueOf(message.getPayload())));
        client.subscribe("room/java", new SubscribeOptions(), event -> {}).close();
        client.subscribe("room/java", new SubscribeOptions(), event -> {});
        client.send("SAY", "{\"room\":\"java\",\"text\":\"hi\"}").get();
        String history = client.call("GET_HISTORY", "{\"room\":\"java\"}", 5_000L).get();
        // README: end
        String[] results = {history, said.get(30, TimeUnit.SECONDS)};
        client.close().get();
        return results;
    }

    /** Answers calls of the server. */
    static boolean delete(String url) throws Exception {
        Options options = new Options();
        options.setTimeoutMs(10_000);
        options.setTokenProvider(expired -> null);
        JavaClient client = new JavaClient(url, options);
        client.handle("ASK_USER", "USER_ANSWER", question -> CompletableFuture.completedFuture("{\"yes\":true}"));
        String deleted = client.call("DELETE_ROOM", "{\"room\":\"go\"}").get();
        client.close().get();
        return deleted.contains("true");
    }

    /** Returns the code of a call that fails. */
    static String failure(String url) throws Exception {
        JavaClient client = new JavaClient(url);
        try {
            client.call("GET_HISTORY", "{\"room\":\"nowhere\"}").get();
            return "";
        } catch (java.util.concurrent.ExecutionException failed) {
            return ((PenstockException) failed.getCause()).getCode();
        } finally {
            client.close().get();
        }
    }
}
